"""Compile the modules that score a request, by mypyc and the system's C compiler: about twenty seconds, done once.

    python -m weighbridge.router.difficulty.compiling

Set-up runs this. Without a compiler, or without mypy, it says so and changes nothing: all of it works in plain Python,
only slower. Nothing that serves imports this module.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from weighbridge.router.difficulty.compiled import GROUP, PACKAGE, PLACE, SUFFIX, fingerprint, place, sources
from weighbridge.router.difficulty.score import SCORING

_LIMIT_S: Final = 600.0

_BUILD: Final = """
import sys
from mypyc.build import mypycify
from setuptools import setup
group, *files = sys.argv[1:]
sys.argv[1:] = ["--quiet", "build_ext", "--inplace"]
setup(name="scoring", packages=[], ext_modules=mypycify(
    ["--namespace-packages", "--explicit-package-bases", *files],
    opt_level="2", debug_level="0", strip_asserts=True, group_name=group))
"""

_TRY: Final = """
import weighbridge.router.difficulty as room
from weighbridge.router.difficulty.score import assess
texts = ["Prove that 2^n > n for all n by induction.", "다음 글을 한 문장으로 요약해 줘: 내일은 비가 온다고 합니다.",
    "def f(x):\\n    return x +\\n\\nThis fails with an exception, why?",
    "Which?\\na. one\\nb. two\\nc. three\\nd. four", ""]
print(room.COMPILED, [assess({"messages": [{"role": "user", "content": text}]}) for text in texts])
"""


class CannotCompile(Exception):
    """What is missing, or what went wrong."""


def compile_into(where: Path) -> Path:
    """Compile for the sources as they are; returns the folder below `where` that holds the result.

    What is there already is kept. Nothing is put in place before it gave the same scores as plain Python.

    Raises:
        CannotCompile: there is no compiler, or it failed.
    """
    mark = fingerprint()
    folder = where / mark
    if folder.is_dir():
        return folder
    if (lack := missing()) is not None:
        raise CannotCompile(lack)
    where.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=where, prefix=".making-") as name:
        work = Path(name)
        # Only what the fingerprint covers is there to be compiled, so nothing else can have gone in.
        for inner, file in sources().items():
            target = work / "weighbridge" / inner
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        room = work.joinpath("weighbridge", *PACKAGE.split(".")[1:])
        modules = [str((room / f"{name}.py").relative_to(work)) for name in SCORING]
        _run(["-c", _BUILD, GROUP, *modules], work, {"MYPYPATH": str(work), "PYTHONPATH": ""})
        made = work / "made" / mark
        made.mkdir(parents=True)
        for library in room.glob(f"*{SUFFIX}"):
            library.rename(made / library.name)
        compiled = _run(["-c", _TRY], None, {PLACE: str(made.parent)})
        plain = _run(["-c", _TRY], None, {PLACE: ""})
        if compiled != plain.replace("False", "True", 1):
            raise CannotCompile("the compiled score is another than that of plain Python")
        if fingerprint() != mark:
            raise CannotCompile("a source changed meanwhile")
        # Somebody else may have been faster; theirs is the same.
        if not folder.is_dir():
            made.rename(folder)
    return folder


def missing() -> str | None:
    """What this machine lacks to compile anything; None where all is there."""
    for module in ("mypyc", "setuptools"):
        if find_spec(module) is None:
            return f"{module} is not installed"
    compiler = str(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return f"there is no C compiler ({compiler})"
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        return "Python's C headers are not installed"
    return None


def _run(arguments: list[str], folder: Path | None, variables: dict[str, str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603  our own interpreter, our own arguments
            [sys.executable, *arguments],
            cwd=folder,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise CannotCompile(str(exc)) from None
    if done.returncode != 0:
        told = (done.stdout + done.stderr).strip().splitlines()
        raise CannotCompile("\n".join([f"exit status {done.returncode}", *told[-20:]]))
    return done.stdout


def main() -> None:
    """Compile into the environment; always ends well, as nothing needs it. `--stamp FILE` is touched once done."""
    parser = argparse.ArgumentParser(description="Compile the difficulty score.")
    parser.add_argument("--stamp", type=Path)
    stamp: Path | None = parser.parse_args().stamp
    where = place()
    if where is None:
        return
    try:
        compile_into(where)
    except (CannotCompile, OSError) as exc:
        sys.stdout.write(
            f"the difficulty score stays in plain Python, which takes it 1.7 times as long: {exc}\n"
        )
    else:
        sys.stdout.write("the difficulty score is compiled\n")
        if stamp is not None:
            stamp.touch()


if __name__ == "__main__":
    main()
