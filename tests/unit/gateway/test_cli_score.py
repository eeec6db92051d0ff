"""`weighbridge score`: one request explained, or many scored line by line."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from weighbridge.gateway.cli import main
from weighbridge.router.difficulty.score import assess

SECRET = "Zebrafink 4711"


def test_one_request_is_explained_without_repeating_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", f"Prove that {SECRET} is irrational."]) == 0
    out = capsys.readouterr().out
    assert SECRET not in out
    lines = dict(line.split(None, 1) for line in out.splitlines() if not line.startswith("P("))
    assert lines["task"] == "math"
    assert lines["road"].startswith("commercial: score ")
    assert "evidence+" in lines["moved"]
    assert "from the bound of local-8b (0.45)" in lines["score"]
    assert "P(8B fails)" in out
    assert "P(70B fails)" in out
    assert "linear-2@" in lines["versions"]


def test_what_a_policy_clamps_is_told_beside_the_score(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "Write a Python function that merges overlapping intervals."]) == 0
    out = capsys.readouterr().out
    assert "clamped to    0.750" in out
    assert "road          commercial: task code: commercial, at least 0.75" in out


def test_a_file_may_hold_a_text_or_a_body(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = {"messages": [{"role": "user", "content": "프랑스어로 번역해줘: 내일 봐요."}]}
    for name, content in (("body.json", json.dumps(body)), ("text.txt", body["messages"][0]["content"])):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        assert main(["score", "--file", str(path)]) == 0
        assert "task          translation" in capsys.readouterr().out
    assert main(["score", "--file", str(tmp_path / "gone")]) == 2
    assert "gone" in capsys.readouterr().err


def test_standard_input_is_one_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("Translate into French: See you tomorrow."))
    assert main(["score"]) == 0
    assert "task          translation" in capsys.readouterr().out


def test_lines_in_lines_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    messages = [
        {
            "role": "user",
            "content": "Should we approve the loan? Income 3,200, debt 14,000, two late payments.",
        }
    ]
    rows = [{"id": "a", "prompt": "Hi there!"}, {"id": 7, "messages": messages}, {"prompt": "What is 2 + 2?"}]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n", encoding="utf-8")
    assert main(["score", "--jsonl", str(path)]) == 0
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [answer["id"] for answer in answers] == ["a", 7, None]
    assert set(answers[0]) == {"id", "score", "task", "p_8b_fails", "p_70b_fails", "road"}
    expected = assess({"messages": messages})
    assert answers[1]["task"] == expected.task == "decision"
    assert answers[1]["score"] == expected.score
    assert answers[1]["p_8b_fails"] == expected.p_8b_fails
    assert answers[1]["road"] == "commercial"


def test_the_score_is_the_one_before_clamps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"id": 1, "prompt": "Write a Python function that merges overlapping intervals."}
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(row)))
    assert main(["score", "--jsonl"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["road"] == "commercial"
    assert answer["score"] < 0.75


def test_bad_lines_are_named_and_the_others_are_scored(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = json.dumps({"id": 1, "prompt": "Hi!"})
    bad = [f"{{{SECRET}", "[1]", json.dumps({"id": 2}), json.dumps({"prompt": 3}), "[" * 100_000]
    bad += ['{"id": NaN, "prompt": "x"}', '{"id": 1e999, "prompt": "x"}']
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join([good, *bad, good])))
    assert main(["score", "--jsonl"]) == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2
    assert [line.split(":")[0] for line in err.splitlines()] == [f"line {n}" for n in range(2, 9)]
    assert SECRET not in err


def test_a_policy_of_the_operators_own_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policy = tmp_path / "own.yaml"
    shipped = files("weighbridge.policies").joinpath("default.yaml").read_text(encoding="utf-8")
    own = shipped.replace("name: default", "name: own").replace(
        "chat:\n    road: by-score", "chat:\n    road: local-70b"
    )
    policy.write_text(own, encoding="utf-8")
    assert main(["score", "--policy", str(policy), "Hi there!"]) == 0
    out = capsys.readouterr().out
    assert "road          local-70b: task chat: local-70b" in out
    assert "own@" in out


def test_a_byte_order_mark_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "marked"
    path.write_text(json.dumps({"id": 1, "prompt": "Hi there!"}), encoding="utf-8-sig")
    assert main(["score", "--jsonl", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["task"] == "chat"
    path.write_text("Translate into French: See you tomorrow.", encoding="utf-8-sig")
    assert main(["score", "--file", str(path)]) == 0
    assert "task          translation" in capsys.readouterr().out


def test_a_text_and_a_file_are_one_too_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "Hi!", "--file", str(tmp_path / "gone")]) == 2
    assert main(["score", "--jsonl", str(tmp_path / "gone"), "--file", "-"]) == 2
    out, err = capsys.readouterr()
    assert not out and err == "TEXT and --file: give one of them\n" * 2


@pytest.mark.parametrize("options", [[], ["--jsonl"]])
def test_closed_input_is_told_in_a_line(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert main(["score", *options]) == 2
    assert capsys.readouterr().err == "-: standard input is closed\n"


def test_a_full_disk_is_told_in_a_line() -> None:
    command = [sys.executable, "-m", "weighbridge.gateway.cli", "score", "Hi!"]
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "output: No space left on device\n")
