"""The score's modules in C, where the environment holds some that were made of exactly these sources.

`compiling.py` makes them. Their folder bears the hash of every source that went in, so a line that changes in one of
them leaves the compiled ones behind unused, and Python reads the sources. Either way the scores are the same.
"""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
from collections.abc import MutableSequence
from importlib import import_module
from pathlib import Path
from typing import Final

from weighbridge.policies import risk, tasks

PLACE: Final = "_WEIGHBRIDGE_COMPILED"
"""A variable that names another place to look in; when it is empty nothing compiled is used."""

PACKAGE: Final = "weighbridge.router.difficulty"
GROUP: Final = f"{PACKAGE}.scoring"
"""The library of all of them together is named after this; mypyc adds `__mypyc`."""

SUFFIX: Final[str] = sysconfig.get_config_var("EXT_SUFFIX")


def sources() -> dict[str, Path]:
    """All that may go in, by where it lies below `weighbridge`: this room, and what it needs of others."""
    files = {f"router/difficulty/{file.name}": file for file in Path(__file__).parent.glob("*.py")}
    for module in (risk, tasks):
        file = Path(str(module.__file__))
        files[f"policies/{file.name}"] = file
    return dict(sorted(files.items()))


def fingerprint() -> str:
    """A hash of the sources and of the Python that they are compiled for."""
    found = hashlib.sha256(SUFFIX.encode())
    for name, file in sources().items():
        found.update(f"\0{name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()[:16]


def place() -> Path | None:
    """Where compiled modules are kept: in the environment, never beside the sources. None: nowhere."""
    named = os.environ.get(PLACE)
    if named is None:
        return Path(sys.prefix, "lib", "weighbridge-compiled")
    return Path(named) if named else None


def put_in_front(path: MutableSequence[str]) -> bool:
    """Let a package's `path` begin where its compiled modules are. False: there are none that fit and load."""
    where = place()
    if where is None or not where.is_dir():
        return False
    folder = where / fingerprint()
    if not folder.is_dir():
        return False
    path.insert(0, str(folder))
    try:
        import_module(f"{GROUP}__mypyc")
    except ImportError:  # another C library, another processor: an environment that was copied here
        path.remove(str(folder))
        return False
    return True
