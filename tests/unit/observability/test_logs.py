from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import warnings
from collections.abc import Iterator

import pytest

from weighbridge.observability.logs import setup_logging

SECRET = "900101-1234567 김철수"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("weighbridge")
    before = (root.handlers[:], root.level, ours.level, logging.raiseExceptions)
    yield
    logging.captureWarnings(False)
    root.handlers[:], level, our_level, logging.raiseExceptions = before
    root.setLevel(level)
    ours.setLevel(our_level)


@pytest.fixture
def lines() -> io.StringIO:
    stream = io.StringIO()
    setup_logging(stream=stream)
    return stream


def test_a_line_has_utc_time_level_logger_and_message(lines: io.StringIO) -> None:
    record = logging.makeLogRecord(
        {
            "name": "weighbridge.pool",
            "levelname": "INFO",
            "levelno": 20,
            "msg": "tier %s ready",
            "args": ("한",),
        }
    )
    record.created = 1_767_225_600.25
    logging.getLogger("weighbridge.pool").handle(record)
    assert lines.getvalue() == "2026-01-01T00:00:00.250Z INFO weighbridge.pool: tier 한 ready\n"


def test_json_lines_name_the_request_they_are_about() -> None:
    stream = io.StringIO()
    setup_logging(json=True, stream=stream)
    logging.getLogger("weighbridge.router").info("request %s: %s", "0192-ab", "moving to commercial")
    logging.getLogger("weighbridge.router").warning("no request %s: a number", 7)
    logging.getLogger("somebody.else").warning("request %s: theirs", SECRET)
    ours, plain, foreign = (json.loads(line) for line in stream.getvalue().splitlines())
    assert ours["request_id"] == "0192-ab"
    assert ours["message"] == "request 0192-ab: moving to commercial"
    assert "request_id" not in plain and "request_id" not in foreign


def test_json_lines() -> None:
    stream = io.StringIO()
    setup_logging(json=True, stream=stream)
    logging.getLogger("weighbridge.pool").error('a "quoted"\nmessage')
    (line,) = stream.getvalue().splitlines()
    fields = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", fields.pop("time"))
    assert fields == {"level": "ERROR", "logger": "weighbridge.pool", "message": 'a "quoted"\\nmessage'}


def test_one_record_is_one_line(lines: io.StringIO) -> None:
    logging.getLogger("weighbridge").warning("one\ntwo\r\x1b[31mthree\u2028four")
    assert len(lines.getvalue().splitlines()) == 1
    assert "\x1b" not in lines.getvalue()


@pytest.mark.parametrize("as_json", [False, True])
def test_an_exception_leaves_its_text_behind(as_json: bool) -> None:
    stream = io.StringIO()
    setup_logging(json=as_json, stream=stream)
    try:
        try:
            raise KeyError(SECRET)
        except KeyError as inner:
            raise ValueError(SECRET) from inner
    except ValueError:
        logging.getLogger("weighbridge.x").exception("it failed")
    (line,) = stream.getvalue().splitlines()
    assert SECRET not in line
    assert re.search(r"ValueError at test_logs\.py:\d+, from KeyError at test_logs\.py:\d+", line)


async def test_what_asyncio_says_of_a_failed_task_is_cut(lines: io.StringIO) -> None:
    async def fail() -> None:
        raise ValueError(SECRET)

    task = asyncio.create_task(fail())
    await asyncio.wait([task])
    loop = asyncio.get_running_loop()
    loop.default_exception_handler(
        {"message": "Task exception was never retrieved", "exception": task.exception(), "task": task}
    )
    assert "Task exception was never retrieved [ValueError" in lines.getvalue()
    assert SECRET not in lines.getvalue()


def test_others_speak_from_warning_on_and_we_from_info(lines: io.StringIO) -> None:
    logging.getLogger("presidio-analyzer").info("quiet")
    logging.getLogger("presidio-analyzer").warning("loud")
    logging.getLogger("weighbridge.pool").info("ours")
    logging.getLogger("weighbridge.pool").debug("detail")
    assert [line.rsplit(" ", 1)[1] for line in lines.getvalue().splitlines()] == ["loud", "ours"]


def test_a_logger_that_only_begins_like_ours_is_foreign(lines: io.StringIO) -> None:
    logging.getLogger("weighbridgeish").warning("first\nsecond")
    assert lines.getvalue().endswith("weighbridgeish: first\n")


def test_warnings_are_logged_too(lines: io.StringIO) -> None:
    warnings.warn("careful", UserWarning, stacklevel=1)
    assert "WARNING py.warnings:" in lines.getvalue()
    assert "UserWarning: careful" in lines.getvalue()


def test_setting_up_twice_writes_once(lines: io.StringIO) -> None:
    again = io.StringIO()
    setup_logging(stream=again)
    logging.getLogger("weighbridge").info("hello")
    assert lines.getvalue() == ""
    assert again.getvalue().count("hello") == 1


def test_a_record_that_cannot_be_formatted_is_not_spilled(
    lines: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger("weighbridge").info("%d", SECRET)
    assert SECRET not in capsys.readouterr().err + lines.getvalue()
