"""`weighbridge mask` and `weighbridge models fetch` as an operator runs them, with real detectors."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from weighbridge.gateway import cli
from weighbridge.masking import models

pytestmark = pytest.mark.slow


@pytest.fixture
def config(tmp_path: Path) -> Path:
    values = tmp_path / "values.txt"
    values.write_text("나이트자\n", encoding="utf-8")
    path = tmp_path / "settings.yaml"
    masking = {"layers": ["ko-rules"], "without_names": "mask", "known_values": {"sales": str(values)}}
    path.write_text(yaml.safe_dump({"masking": masking, "state_dir": str(tmp_path / "state")}))
    return path


def run(config: Path, *argv: str) -> int:
    return cli.main(["mask", "--config", str(config), *argv])


def test_a_file_side_by_side(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "letter.txt"
    text.write_text("안녕하세요\n전화는 010-2345-6789입니다\n끝", encoding="utf-8")
    assert run(config, str(text)) == 0
    shown, told = capsys.readouterr()
    first, second, third, *_ = shown.splitlines()
    assert first.split() == ["안녕하세요", "안녕하세요"]
    assert "010-2345-6789입니다" in second and " | " in second and "[PHONE_" in second
    assert third.split() == ["끝", "끝"]
    assert "found: 1 PHONE" in shown and "may leave, masked" in shown
    assert "layers structured" in told


def test_a_value_over_two_lines_keeps_the_columns_in_step(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "letter.txt"
    text.write_text("call 010-2345-\n6789 now\nlast", encoding="utf-8")
    run(config, str(text))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("call 010-2345-") and "[PHONE_" in lines[0]
    assert lines[1].startswith("6789 now") and "[PHONE_" not in lines[1]
    assert lines[2].split() == ["last", "last"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("주민번호는 900101-1234567", "refused_type"),
        ("이 문서는 대외비입니다", "blocked_term"),
    ],
)
def test_what_would_not_leave_says_why(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    assert run(config, "-") == 3
    assert f"would not leave: {reason}," in capsys.readouterr().out


def test_lines_for_evaluation(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows: list[dict[str, Any]] = [
        {"id": n, "text": f"😀 번호 010-2345-{n:04d}", "lang": "ko"} for n in range(100)
    ]
    rows.append({"id": "rrn", "text": "900101-1234567"})
    rows.append({"id": "empty", "text": ""})
    source = tmp_path / "in.jsonl"
    source.write_text("\n\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    assert run(config, "--jsonl", str(source)) == 0
    made = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["id"] for row in made] == [row["id"] for row in rows]
    for asked, got in zip(rows[:100], made, strict=False):
        (span,) = got["spans"]
        assert asked["text"][span["start"] : span["end"]] == asked["text"][5:]
        assert got["masked"].startswith("😀 번호 [PHONE_") and got["refused"] is None
    assert (made[100]["refused"], made[100]["spans"][0]["type"]) == ("refused_type", "RRN")
    assert "1234567" not in made[100]["masked"]
    assert made[101] == {"id": "empty", "masked": "", "spans": [], "refused": None}


def test_the_tenants_list_counts(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for argv, found in (((), "nothing"), (("--tenant", "sales"), "1 KNOWN")):
        monkeypatch.setattr("sys.stdin", io.StringIO("새 사업 나이트자가 곧 시작된다"))
        assert run(config, *argv) == 0
        assert f"found: {found}" in capsys.readouterr().out


@pytest.mark.parametrize("line", ["secret words", '{"text": 5}'])
def test_a_line_that_is_none_is_named(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text('{"id": 1, "text": "a"}\n' + line, encoding="utf-8")
    assert run(config, "--jsonl", str(source)) == 2
    assert capsys.readouterr().err.splitlines()[-1] == 'line 2: must be a JSON object with a string "text"'


def test_files_that_cannot_be_read(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(config, str(tmp_path / "none.txt")) == 2
    assert "none.txt: No such file" in capsys.readouterr().err
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    assert run(config, str(tmp_path / "bytes")) == 2
    assert "bytes: not UTF-8" in capsys.readouterr().err


def test_fetching_goes_where_the_settings_say(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Path] = []

    def fetch(folder: Path) -> Path:
        seen.append(folder)
        if len(seen) > 1:
            raise models.FetchFailed("no pip")
        return folder / "model"

    monkeypatch.setattr(models, "fetch", fetch)
    document = yaml.safe_load(config.read_text())
    document["masking"]["models_dir"] = str(tmp_path / "models")
    config.write_text(yaml.safe_dump(document))
    argv = ["models", "fetch", "--config", str(config)]
    assert cli.main(argv) == 0
    assert seen == [tmp_path / "models"] and str(tmp_path / "models") in capsys.readouterr().out
    assert cli.main(argv) == 1
    assert capsys.readouterr().err == "no pip\n"


@contextmanager
def process(config: Path, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
    code = "from weighbridge.gateway.cli import main; raise SystemExit(main())"
    command = [sys.executable, "-c", code, "mask", "--config", str(config), *argv]
    # A locale that knows no Hangul.
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as started:
        # A command that waits for more than it was asked would keep this test waiting too.
        late = threading.Timer(60, started.kill)
        late.start()
        try:
            yield started
        finally:
            late.cancel()
            started.kill()


def test_every_line_is_answered_before_the_next_one_is_asked_for(config: Path) -> None:
    with process(config, "--jsonl") as started:
        assert started.stdin is not None and started.stdout is not None
        for n in range(20):
            asked = json.dumps({"id": n, "text": f"가 010-2345-{n:04d}"}, ensure_ascii=False)
            started.stdin.write(("\ufeff" if n == 0 else "").encode() + asked.encode() + b"\n")
            started.stdin.flush()
            told = json.loads(started.stdout.readline())
            assert (told["id"], told["masked"][:9]) == (n, "가 [PHONE_")
        started.stdin.write(b'{"id": "\\ud83d", "text": "\\ud83d"}\n')
        started.stdin.close()
        told = json.loads(started.stdout.readline())
        assert (told["id"], told["refused"], told["masked"]) == ("\ud83d", "unknown_field_type", "")
        assert started.wait() == 0


def test_lines_before_a_wrong_one_are_told(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "in.jsonl"
    lines = [json.dumps({"id": n, "text": "a" * 100}) for n in range(9)]
    source.write_text("\n".join([*lines, "[" * 100_000, "{}"]), encoding="utf-8")
    assert run(config, "--jsonl", str(source)) == 2
    shown, told = capsys.readouterr()
    assert [json.loads(line)["id"] for line in shown.splitlines()] == list(range(9))
    assert told.splitlines()[-1] == 'line 10: must be a JSON object with a string "text"'


def test_no_line_is_late_for_those_before_it(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = yaml.safe_load(config.read_text())
    document["masking"] |= {"max_queue": 1, "workers": 1}
    config.write_text(yaml.safe_dump(document))
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(json.dumps({"id": n, "text": f"{n} a b"}) for n in range(30)))
    assert run(config, "--jsonl", str(source)) == 0
    made = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["refused"] for row in made] == [None] * 30


def test_no_input_at_all(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    assert run(config, "--jsonl", str(empty)) == 0
    assert capsys.readouterr().out == ""
    assert run(config, str(empty)) == 0
    assert "found: nothing" in capsys.readouterr().out


def test_a_text_of_too_many_characters(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "long"
    text.write_text("one\ntwo\n" * 30_000)
    assert run(config, str(text)) == 3
    shown = capsys.readouterr().out
    assert "would not leave: too_large," in shown and "two" not in shown


def test_a_policy_that_lets_nothing_leave(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = yaml.safe_load(config.read_text())
    document["policies"] = {"name": "on-prem-only"}
    config.write_text(yaml.safe_dump(document))
    monkeypatch.setattr("sys.stdin", io.StringIO("a b"))
    assert run(config) == 3
    shown = capsys.readouterr().out
    assert "egress: never" in shown and "may leave" not in shown
