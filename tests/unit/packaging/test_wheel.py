"""`pip install .` into a clean environment: small, without torch, and with everything it reads at run time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
UV = Path(sys.executable).with_name("uv")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
ROOMS = [package.partition(".")[2] for package in PROJECT["tool"]["importlinter"]["root_packages"]]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("wheel")
    source = work / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for room in ROOMS:
        shutil.copytree(ROOT / room, source / room, ignore=shutil.ignore_patterns("__pycache__"))
    run(UV, "build", "--quiet", "--wheel", "--out-dir", work, source, cwd=work)
    (built,) = work.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment that holds the wheel and what it depends on; returns its `bin`."""
    venv = tmp_path_factory.mktemp("clean") / "venv"
    run(UV, "venv", "--quiet", "--python", sys.executable, venv, cwd=venv.parent)
    pins = ROOT / "requirements" / "core.txt"
    python = venv / "bin" / "python"
    run(UV, "pip", "install", "--quiet", "--python", python, "--constraints", pins, wheel, cwd=venv.parent)
    return venv / "bin"


def run(*command: object, cwd: Path) -> str:
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("WEIGHBRIDGE_") and name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env | {"XDG_STATE_HOME": str(cwd)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_holds_the_rooms_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    outside = [name for name in names if not name.startswith(("weighbridge/", "weighbridge-"))]
    assert outside == []
    wanted = {
        file.relative_to(ROOT)
        for room in ROOMS
        for file in (ROOT / room).rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert {
        Path(name).relative_to("weighbridge") for name in names if name.startswith("weighbridge/")
    } == wanted


def test_the_command_tells_its_version(clean: Path, tmp_path: Path) -> None:
    assert PROJECT["project"]["version"] in run(clean / "weighbridge", "--version", cwd=tmp_path)


def test_check_passes_on_the_shipped_defaults(clean: Path, tmp_path: Path) -> None:
    assert "local-8b" in run(clean / "weighbridge", "check", cwd=tmp_path)


def test_no_engine_comes_with_the_core(clean: Path, tmp_path: Path) -> None:
    code = (
        "import importlib.util as u; print([n for n in ('torch', 'vllm', 'transformers') if u.find_spec(n)])"
    )
    assert run(clean / "python", "-c", code, cwd=tmp_path).strip() == "[]"


@pytest.mark.parametrize("module", ["weighbridge.gateway.cli", "weighbridge.gateway.app"])
def test_the_core_loads_quickly(clean: Path, tmp_path: Path, module: str) -> None:
    code = (
        f"import sys, time; import {module}; print(time.process_time());"
        "print(*sorted({'presidio_analyzer', 'spacy', 'numpy'} & sys.modules.keys()))"
    )
    run(clean / "python", "-c", code, cwd=tmp_path)  # the first run compiles the bytecode
    seconds, heavy = run(clean / "python", "-c", code, cwd=tmp_path).split("\n")[:2]
    assert float(seconds) < 4, f"{seconds} s of CPU"
    assert heavy == "", "detectors are for the masking processes to load"


def test_the_plug_in_vllm_loads_is_there(clean: Path, tmp_path: Path) -> None:
    code = (
        "from importlib.metadata import entry_points;"
        "(point,) = entry_points(group='vllm.general_plugins', name='weighbridge_reaper');"
        "print(callable(point.load()))"
    )
    assert run(clean / "python", "-c", code, cwd=tmp_path).strip() == "True"
