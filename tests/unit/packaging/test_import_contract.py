"""The import rule between rooms holds, and the check that holds it bites."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")
ROOMS = [
    name.partition(".")[2]
    for name in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]
]


def lint_imports(root: Path, path: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINT_IMPORTS, "--no-cache"],
        cwd=root,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The rooms, copied, and importable as `weighbridge.*` with tmp_path/path on PYTHONPATH."""
    root = tmp_path / "copy"
    root.mkdir()
    shutil.copy(ROOT / "pyproject.toml", root)
    for room in ROOMS:
        shutil.copytree(ROOT / room, root / room, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "weighbridge").symlink_to(root)
    return root


def plant(root: Path, module: str, statement: str) -> None:
    with (root / module).open("a") as file:
        file.write(f"\n{statement}\n")


def test_the_rooms_keep_the_rule() -> None:
    done = lint_imports(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_planted_arrows_are_caught(copy: Path) -> None:
    plant(copy, "policies/tasks.py", "from weighbridge.masking import errors")
    plant(copy, "masking/errors.py", "import aiohttp")
    plant(copy, "router/roads.py", "import vllm")
    plant(copy, "state/switch.py", "from redis.asyncio import Redis")
    done = lint_imports(copy, str(copy.parent / "path"))
    assert done.returncode == 1, done.stdout + done.stderr
    # An exception that the contract names is told behind the word.
    broken = {line.partition(" BROKEN")[0] for line in done.stdout.splitlines() if " BROKEN" in line}
    assert broken == {
        "policies imports config, observability and state",
        "commercial and pool's endpoints speak HTTP, masking opens no socket",
        "only state's link knows Redis",
        "only the adapter knows vLLM, and gateway knows no engine",
    }


def test_every_package_is_under_the_rule_and_in_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = set(project["tool"]["setuptools"]["packages"])
    on_disk = {
        "weighbridge." + ".".join(init.parent.relative_to(ROOT).parts)
        for room in ROOMS
        for init in (ROOT / room).rglob("__init__.py")
    }
    assert on_disk == packages
    assert {f"weighbridge.{room}" for room in ROOMS} == {p for p in packages if p.count(".") == 1}
