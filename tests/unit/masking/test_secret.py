"""Where the masking secret comes from: settings, a file of several, or made once in the state folder."""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import stat
import threading
from pathlib import Path

import pytest
from pydantic import SecretStr, ValidationError

from weighbridge.config.errors import ConfigError
from weighbridge.config.settings import MaskingSettings
from weighbridge.masking import secret as secret_module
from weighbridge.masking.secret import SECRET_FILE, Secrets, find_secrets, obtain_secrets

FIRST, SECOND, THIRD = "first-secret-0123456789", "second-secret-012345678", "third-secret-0123456789"


def in_file(folder: Path, text: str, mode: int = 0o600) -> MaskingSettings:
    path = folder / "secrets"
    path.write_text(text)
    path.chmod(mode)
    return MaskingSettings(secret_file=path)


def test_one_secret_of_the_settings(tmp_path: Path) -> None:
    found = obtain_secrets(MaskingSettings(secret=SecretStr(FIRST)), tmp_path)
    assert found == Secrets(FIRST.encode())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "text",
    [
        f"{FIRST}\n{SECOND}\n{THIRD}\n",
        f"{FIRST}\r\n\r\n{SECOND}\r\n{THIRD}",
        f"\n{FIRST}\n{SECOND}\n{FIRST}\n{THIRD}",
    ],
)
def test_the_first_line_is_in_use_and_the_others_are_old(tmp_path: Path, text: str) -> None:
    found = find_secrets(in_file(tmp_path, text), tmp_path)
    assert found == Secrets(FIRST.encode(), (SECOND.encode(), THIRD.encode()))
    assert find_secrets(MaskingSettings(secret=SecretStr(text)), tmp_path) == found
    current, *old = found.chain_keys()
    assert (current,) == Secrets(FIRST.encode()).chain_keys()
    assert old == [*Secrets(SECOND.encode(), (THIRD.encode(),)).chain_keys()]
    # As the documentation says it is made.
    purpose = b"egress chain"
    assert current == hmac.digest(FIRST.encode(), len(purpose).to_bytes(8, "big") + purpose, hashlib.sha256)


@pytest.mark.parametrize(
    "bad",
    ["short", f"{FIRST}\nshort", "two words are too much", "", "\n", f"{FIRST}\n비밀비밀비밀비밀비밀비밀"],
)
def test_a_file_without_usable_secrets_is_refused_and_not_repeated(tmp_path: Path, bad: str) -> None:
    with pytest.raises(ValidationError) as caught:
        in_file(tmp_path, bad)
    said = str(caught.value)
    assert "must hold" in said
    assert all(line not in said for line in bad.split("\n") if line)


def test_secrets_do_not_show(tmp_path: Path) -> None:
    assert FIRST not in repr(find_secrets(in_file(tmp_path, f"{FIRST}\n{SECOND}"), tmp_path))


def test_one_is_made_once_and_said_so_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    folder = tmp_path / "new" / "state"
    before = os.umask(0)
    try:
        made = obtain_secrets(MaskingSettings(), folder)
    finally:
        os.umask(before)
    path = folder / SECRET_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [file.name for file in folder.iterdir()] == [SECRET_FILE]
    assert len(made.current) >= 32
    assert path.read_text().strip().encode() == made.current
    (record,) = caplog.records
    assert str(path) in record.getMessage()
    assert made.current.decode() not in caplog.text
    caplog.clear()
    assert obtain_secrets(MaskingSettings(), folder) == made
    assert caplog.records == []


def test_a_made_one_rotates_like_any_other(tmp_path: Path) -> None:
    made = obtain_secrets(MaskingSettings(), tmp_path)
    path = tmp_path / SECRET_FILE
    path.write_text(f"{FIRST}\n{path.read_text()}")
    assert obtain_secrets(MaskingSettings(), tmp_path) == Secrets(FIRST.encode(), (made.current,))


def test_the_settings_go_before_the_state_folder(tmp_path: Path) -> None:
    """A file in the folder that holds the record must not bring a key in: who can write there could sign a new one."""
    made = obtain_secrets(MaskingSettings(), tmp_path)
    found = find_secrets(MaskingSettings(secret=SecretStr(FIRST)), tmp_path)
    assert found == Secrets(FIRST.encode())
    assert made.current not in found.old


def test_looking_makes_nothing(tmp_path: Path) -> None:
    assert find_secrets(MaskingSettings(), tmp_path / "state") is None
    assert list(tmp_path.iterdir()) == []


def test_gateways_that_start_together_agree(tmp_path: Path) -> None:
    barrier = threading.Barrier(8)
    found: list[Secrets] = []

    def start() -> None:
        barrier.wait()
        found.append(obtain_secrets(MaskingSettings(), tmp_path))

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len({one.current for one in found}) == 1
    assert [file.name for file in tmp_path.iterdir()] == [SECRET_FILE]


def test_dying_while_it_is_made_leaves_none_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Died(BaseException):
        pass

    def die(*_: object) -> None:
        raise Died

    monkeypatch.setattr(secret_module.os, "fsync", die)
    with pytest.raises(Died):
        obtain_secrets(MaskingSettings(), tmp_path)
    monkeypatch.undo()
    assert not (tmp_path / SECRET_FILE).exists()
    assert len(obtain_secrets(MaskingSettings(), tmp_path).current) >= 32


@pytest.mark.parametrize("content", ["", "short\n", "two words are too much\n"])
def test_a_damaged_file_in_the_state_folder_is_refused_and_kept(tmp_path: Path, content: str) -> None:
    path = tmp_path / SECRET_FILE
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        obtain_secrets(MaskingSettings(), tmp_path)
    assert str(caught.value).startswith(f"{path}: must hold ")
    assert path.read_text() == content


def test_what_cannot_be_read_or_made_is_said(tmp_path: Path) -> None:
    (tmp_path / SECRET_FILE).mkdir()
    with pytest.raises(ConfigError, match="is a folder"):
        obtain_secrets(MaskingSettings(), tmp_path)
    with pytest.raises(ConfigError, match="cannot be made"):
        obtain_secrets(MaskingSettings(), Path("/proc/no-folder-can-be-here"))
    dangling = tmp_path / "state"
    dangling.mkdir()
    (dangling / SECRET_FILE).symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="no such file"):
        obtain_secrets(MaskingSettings(), dangling)


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o440, False), (0o644, True)])
def test_a_secret_file_that_everybody_can_read_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warned: bool
) -> None:
    assert find_secrets(in_file(tmp_path, FIRST, mode), tmp_path) == Secrets(FIRST.encode())
    assert [f"{mode:04o}" in record.getMessage() for record in caplog.records] == ([True] if warned else [])


def test_a_made_file_that_the_group_can_read_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    obtain_secrets(MaskingSettings(), tmp_path)
    (tmp_path / SECRET_FILE).chmod(0o640)
    caplog.clear()
    obtain_secrets(MaskingSettings(), tmp_path)
    assert "others can read" in caplog.text


def test_a_random_one_is_new_each_time() -> None:
    assert Secrets.random() != Secrets.random()
