"""The real detectors, in their real process."""

from __future__ import annotations

import json
import re
import time
import unicodedata
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from weighbridge.config.clock import SystemClock
from weighbridge.config.deadline import Deadline
from weighbridge.config.settings import MaskingSettings
from weighbridge.masking.detector_nursery import COMMAND, DetectorNursery
from weighbridge.masking.masker import Masker
from weighbridge.masking.rules import Rules
from weighbridge.masking.wire import Setup

pytestmark = pytest.mark.asyncio(loop_scope="module")
CLOCK = SystemClock()

# A process whose every connection attempt and name look-up ends it.
_GUARDED = (
    "import socket, os\n"
    "def deny(*args, **kwargs): os._exit(7)\n"
    "socket.getaddrinfo = socket.gethostbyname = socket.create_connection = deny\n"
    "socket.socket.connect = socket.socket.connect_ex = deny\n"
    "from weighbridge.masking.nursery import main\nmain()"
)
ALL_MASKED = Rules(refused=frozenset())
NURSERY = DetectorNursery(Setup(), (*COMMAND[:2], "-c", _GUARDED))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def masker() -> AsyncIterator[Masker]:
    made = Masker(MaskingSettings(layers=[], without_names="mask"), CLOCK, start_child=NURSERY.start_child)
    await made.start()
    assert made.ready
    yield made
    await made.close()
    await NURSERY.close()


async def entities(masker: Masker, text: str) -> dict[str, int]:
    return dict((await _mask(masker, text)).entities)


async def _mask(masker: Masker, text: str, **body: Any) -> Any:
    return await masker.mask(
        {"messages": [{"role": "user", "content": text}], **body},
        request_id="r",
        upstream_model="m",
        conversation="t/c",
        deadline=Deadline.after(CLOCK, 30),
        rules=ALL_MASKED,
    )


VALUES = [
    ("900101-1234567", "RRN"),
    ("900101 - 1234567", "RRN"),
    ("9001011234567", "RRN"),
    ("201231-3876543", "RRN"),
    ("900101-1******", "RRN"),
    ("920715-6238941", "FRN"),
    ("137-86-20471", "BRN"),
    ("M12345678", "PASSPORT"),
    ("M123A4567", "PASSPORT"),
    ("C8842019", "PASSPORT"),
    ("11-22-333333-44", "LICENSE"),
    ("010-1234-5678", "PHONE"),
    ("01012345678", "PHONE"),
    ("010 1234 5678", "PHONE"),
    ("+82 10-1234-5678", "PHONE"),
    ("02-123-4567", "PHONE"),
    ("02)123-4567", "PHONE"),
    ("031-123-4567", "PHONE"),
    ("212-555-5555", "PHONE"),
    ("110-123-456789", "ACCOUNT"),
    ("523-14-394-9446", "ACCOUNT"),
    ("12가 4827", "PLATE"),
    ("hong.gd+x@example.com", "EMAIL"),
    ("a@corp.internal", "EMAIL"),
    ("root@host", "EMAIL"),
    ("5555-5555-5555-4444", "CARD"),
    ("4111 1111 1111 1111", "CARD"),
    ("GB82 WEST 1234 5698 7654 32", "IBAN"),
    ("536-22-8145", "SSN"),
    ("10.20.30.40", "IP"),
    ("2001:db8::ff00:42:8329", "IP"),
    ("00:1A:2B:3C:4D:5E", "MAC"),
    ("123e4567-e89b-12d3-a456-426614174000", "UUID"),
    ("https://user:pw@a.kr:8443/x?token=abc", "URL"),
    ("postgres://u:p@db:5432/x", "URL"),
    ("www.example.com/me", "URL"),
    ("1989년 3월 22일", "DATE"),
    ("1990-01-31", "DATE"),
    ("2006. 9. 11", "DATE"),
    ("March 22, 1989", "DATE"),
    ("3J98t1WpEZ73CNmQviecrnyiWrnqRhWNLy", "WALLET"),
]
PARTICLES = ("", "은", "이고", "에게서", "으로", "입니다.")


def _wide(value: str) -> str:
    return "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in value)


SPELLINGS = {
    "plain": lambda value: value,
    "full width": _wide,
    "zero width": "\u200b".join,
    "other dashes": lambda value: value.replace("-", "–"),
    "composed": lambda value: unicodedata.normalize("NFC", value),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize(("value", "entity"), VALUES)
async def test_a_value_is_masked_whole(masker: Masker, value: str, entity: str, spelling: str) -> None:
    written = SPELLINGS[spelling](value)
    for particle in PARTICLES:
        masked = await _mask(masker, f"제 값은 {written}{particle} 확인 바랍니다.")
        content = json.loads(masked.body)["messages"][-1]["content"]
        left = re.sub(r"\[[A-Z]+_[A-Z2-7]{8}\]", "", content)
        assert left.replace(" ", "") in ("제값은확인바랍니다.", f"제값은{particle}확인바랍니다."), (
            particle,
            left,
        )
        if spelling == "plain":
            assert list(masked.entities) == [entity]


@pytest.mark.parametrize(
    "number", ["+8201012345678", "+82 010-1234-5678", "+82(0)10 1234 5678", "＋82 010 1234 5678"]
)
async def test_a_telephone_with_the_digits_of_a_resident_number_is_a_telephone(
    masker: Masker, number: str
) -> None:
    assert await entities(masker, f"전화 {number} 입니다") == {"PHONE": 1}


@pytest.mark.parametrize(
    "hidden",
    [
        *(sign.join(("010", "1234", "5678")) for sign in "ㅡ一~*|:=+→'`\\#\n"),
        "".join(f"{digit}\ufe0f\u20e3" for digit in "01012345678"),
        "".join(f"{digit}\u0301" for digit in "0101234"),
        "010 | 1234 | 5678",
        "4111\n1111\n1111\n1111",
        "110\n123\n456789",
        "850713 | 1483920",
        "hong.gildong @ corp.com",
        "kim[@]example.com",
        "kim@\nexample.com",
        '"kim doe"@example.com',
        "kim(at)example.com",
        "kim%40example.com",
        "kim%2540example.com",
        "%2B82%2D10%2D1234%2D5678",
        "kim&#64;example.com",
        "12\\uac003456",
        "1985\\ub144 7\\uc6d4 13\\uc77c",
        "https:\\/\\/intra.corp\\/u?token=abc",
        "kim" + "%25" * 9 + "40example.com",
        "5425.2334.3010.9903",
    ],
)
async def test_other_spellings_are_masked_whole(masker: Masker, hidden: str) -> None:
    for before, after in (("값은 ", " 로"), ('INFO body={"v": "', '"}')):
        masked = await _mask(masker, before + hidden + after)
        content = json.loads(masked.body)["messages"][-1]["content"]
        left = re.sub(r"\[[A-Z]+_[A-Z2-7]{8}\]", "", content)
        if "%25%25" in hidden:
            assert "40" not in left
        elif left != before + after:
            # A quote around an address may go with it, nothing of the value may stay.
            assert left.replace('"', "") == (before + after).replace('"', "")


@pytest.mark.parametrize(
    "text",
    [
        "10:30:45.123, 10:30-11:45, 2019~2023, 1920:1080, 1024*768",
        "| 2021 | 12.5 | 1,200 |\n| 2022 | 13.5 | 1,350 |",
        "100% & more &amp; \\n and 5%25",
        "2023년 3월 매출은 1,234,567원으로 12.5% 늘었습니다.",
        "In 2019-2023 we shipped 3 versions: 1.2.3, 2.0 and 2.1-rc1 (see main.py, README.md).",
        "def add(a, b):\n    return a + b  # O(1)\n\nassert add(2, 3) == 5",
        "오늘 회의는 10:30에 시작합니다. 5명이 참석합니다.",
        "The matrix is [[1, 2, 3], [4, 5, 6], [7, 8, 9]].",
        "rate 3/4, ratio 16:9, chapter 12, 80 km/h, 1e-5, $1,000.50",
    ],
)
async def test_ordinary_text_is_left_alone(masker: Masker, text: str) -> None:
    masked = await _mask(masker, text)
    assert masked.entities == {}
    assert json.loads(masked.body)["messages"] == [{"role": "user", "content": text}]


@pytest.mark.parametrize(
    "shaped", ["[EMAIL_ABCDEFGH]", "[num_abcdefgh]", "［ＮＵＭ_ＡＢＣＤ２３４５］", "[N\u200bUM_ABCDEFGH]"]
)
async def test_placeholder_shapes_are_refused(masker: Masker, shaped: str) -> None:
    from weighbridge.masking.errors import MaskingRefused

    with pytest.raises(MaskingRefused) as raised:
        await _mask(masker, f"what is {shaped}?")
    assert raised.value.reason == "placeholder_shaped_input"


@pytest.mark.parametrize(
    "piece", ["a.", "1", "1-", "1.", "ab:", "http://", "a@", "GB12 ", "12월 ", "010-1234-567 ", "[NUM_"]
)
async def test_hostile_text_is_bounded(masker: Masker, piece: str) -> None:
    """Either masked or refused, within the task's limit; and the process works on or was replaced."""
    from weighbridge.masking.errors import MaskingRefused

    began = time.monotonic()
    try:
        await _mask(masker, piece * (60_000 // len(piece)))
    except MaskingRefused as refused:
        assert refused.reason in ("timeout", "detector_failed")
    assert time.monotonic() - began < 15
    assert await entities(masker, "010-1234-5678") == {"PHONE": 1}


async def test_the_child_is_bare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIGHBRIDGE_MASKING__SECRET", "very-secret-indeed")
    nursery = DetectorNursery(Setup())
    child = await nursery.start_child()
    try:
        environment = Path(f"/proc/{child.pid}/environ").read_bytes()
        assert b"very-secret-indeed" not in environment
        assert b"REGEX_TIMEOUT_SECONDS=86400" in environment
        libraries = Path(f"/proc/{child.pid}/maps").read_text()
        assert "libtorch" not in libraries
        assert "regex" in libraries
    finally:
        await child.kill()
        await nursery.close()
