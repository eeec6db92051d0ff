"""The score in C and in plain Python: one and the same, and never compiled code of other sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from weighbridge.router.difficulty import COMPILED, compiled, compiling

ROOT = Path(__file__).parents[3]
HERE = Path(__file__).parent
PLAIN = ""

SCORES = """
import hashlib, json, pathlib, sys
import weighbridge.router.difficulty as room
from tests.unit.router import test_difficulty_hostile as hostile
from weighbridge.router.difficulty.score import CALIBRATION_VERSION, assess
bodies = [{"messages": [{"role": "user", "content": text}]} for text in
    (hostile.ENGLISH, hostile.KOREAN, hostile.CODE, "", "\\ud800", "a" * 50_000, "simple task: prove it")]
for file in sorted(pathlib.Path("tests/data/task_prompts").glob("*.jsonl")):
    for line in file.open():
        row = json.loads(line)
        body = {"messages": row["messages"]}
        bodies += [body, {"messages": [{"role": "system", "content": "Be brief."}, *row["messages"] * 2]}]
bodies += [{}, {"messages": 1}, {"messages": [1, {"role": "user", "content": [{"text": "Sum 1+1"}, 3]}]},
    {**bodies[0], "response_format": {"json_schema": {"schema": {"properties": {"label": {"enum": [1]}, 3: None}}}},
    "tools": [{"function": {"name": "classify_it"}}, 7]}]
print(room.COMPILED, CALIBRATION_VERSION, len(bodies), hashlib.sha256("".join(
    [repr(assess(body)) for body in bodies]).encode()).hexdigest())
"""


def run(place: str, *arguments: str, **variables: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, compiled.PLACE: place, **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A place that holds compiled code: set-up's, or one made now. Without a compiler plain Python is all there is."""
    if COMPILED:
        return str(compiled.place())
    if compiling.missing() is not None:
        return PLAIN
    return str(compiling.compile_into(tmp_path_factory.mktemp("compiled")).parent)


@pytest.mark.slow
def test_compiled_and_plain_code_give_the_same_scores(made: str) -> None:
    in_use, *scores = run(made, "-c", SCORES)
    assert in_use == str(made != PLAIN)
    assert run(PLAIN, "-c", SCORES) == ["False", *scores]
    assert int(scores[1]) > 2_000


@pytest.mark.slow
def test_the_tests_of_the_score_hold_for_the_kind_that_is_not_in_use_here(made: str) -> None:
    files = ["score", "hostile"]
    tests = [str(HERE / f"test_difficulty_{name}.py") for name in files]
    run(
        PLAIN if COMPILED else made,
        "-m",
        "pytest",
        "-q",
        "-x",
        *tests,
        str(HERE / "test_bookkeeping_cost.py"),
    )


@pytest.mark.slow
def test_a_changed_source_leaves_the_compiled_code_unused(made: str, tmp_path: Path) -> None:
    for inner, file in compiled.sources().items():
        target = tmp_path / "weighbridge" / inner
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    shutil.copy(ROOT / "router/difficulty/model.json", tmp_path / "weighbridge/router/difficulty")
    program = (
        "import weighbridge.router.difficulty as room, weighbridge.router.difficulty.score as score\n"
        "print(room.COMPILED, score.assess({'messages': [{'role': 'user', 'content': 'Prove it.'}]}).score)"
    )
    in_use, score = run(made, "-c", program, PYTHONPATH=str(tmp_path))
    assert in_use == str(made != PLAIN), "the copy is what was compiled, wherever it lies"
    for changed in ("router/difficulty/shape.py", "policies/risk.py"):
        source = tmp_path / "weighbridge" / changed
        before = source.read_text()
        source.write_text(before + "\n# one more line\n")
        assert run(made, "-c", program, PYTHONPATH=str(tmp_path)) == ["False", score]
        source.write_text(before)
    assert run(made, "-c", program, PYTHONPATH=str(tmp_path)) == [in_use, score]


def test_all_of_ours_that_scoring_imports_is_in_the_fingerprint() -> None:
    program = (
        "import sys, weighbridge.router.difficulty.score\n"
        "for name, module in sys.modules.items():\n"
        "    if name.startswith('weighbridge.') and (module.__file__ or '').endswith('.py'):\n"
        "        print(name.removeprefix('weighbridge.').replace('.', '/') + '.py')\n"
    )
    rooms = {
        "policies.py",
        "router.py",
        "router/difficulty.py",
    }  # the `__init__` of each, with nothing to compile
    loaded = set(run(PLAIN, "-c", program)) - rooms
    assert "router/difficulty/shape.py" in loaded
    assert loaded <= set(compiled.sources())


def test_what_does_not_load_is_not_used(tmp_path: Path) -> None:
    program = (
        "import weighbridge.router.difficulty as room, weighbridge.router.difficulty.score as score\n"
        "print(room.COMPILED, len(room.__path__), score.assess({}).task)"
    )
    folder = tmp_path / compiled.fingerprint()
    assert run(str(tmp_path), "-c", program) == ["False", "1", "unknown"]
    folder.mkdir()
    assert run(str(tmp_path), "-c", program) == ["False", "1", "unknown"]
    (folder / f"scoring__mypyc{compiled.SUFFIX}").write_bytes(b"no library")
    assert run(str(tmp_path), "-c", program) == ["False", "1", "unknown"]


def test_every_byte_of_a_source_and_its_name_count_for_the_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "shape.py"
    found = set()
    for name, text in (("a", "x = 1\n"), ("a", "x = 2\n"), ("a", "x = 1"), ("b", "x = 1\n")):
        source.write_text(text)
        monkeypatch.setattr(compiled, "sources", lambda name=name: {name: source})
        found |= {compiled.fingerprint(), compiled.fingerprint()}
    assert len(found) == 4


@pytest.mark.parametrize("tells", ["True [0.2]", "False [0.1]"])
def test_what_scores_otherwise_is_not_put_in_place(
    tells: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_as_told(_: list[str], folder: Path | None, variables: dict[str, str]) -> str:
        return "" if folder else "False [0.1]" if variables[compiled.PLACE] == "" else tells

    monkeypatch.setattr(compiling, "_run", run_as_told)
    monkeypatch.setattr(compiling, "missing", lambda: None)
    with pytest.raises(compiling.CannotCompile, match="another"):
        compiling.compile_into(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_a_compiler_nothing_is_made_and_set_up_goes_on(tmp_path: Path) -> None:
    place = tmp_path / "place"
    stamp = tmp_path / "stamp"
    told = run(
        str(place),
        "-m",
        "weighbridge.router.difficulty.compiling",
        "--stamp",
        str(stamp),
        CC="/no/such/compiler",
    )
    assert not stamp.exists(), "once there is a compiler, set-up is to try again"
    assert " ".join(told).startswith("the difficulty score stays in plain Python")
    assert "/no/such/compiler" in " ".join(told)
    assert not place.exists()


def test_a_compiler_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "missing", lambda: None)
    monkeypatch.setattr(compiling, "_BUILD", "raise SystemExit('what a compiler says')")
    with pytest.raises(compiling.CannotCompile, match="what a compiler says"):
        compiling.compile_into(tmp_path)
    assert list(tmp_path.iterdir()) == []
