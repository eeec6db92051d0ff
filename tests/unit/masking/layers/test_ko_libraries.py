"""The Korean layers that stand on packages: what they call a value, what they need, what they must not do."""

from __future__ import annotations

import subprocess
import sys
import time
from importlib import import_module
from itertools import pairwise

import pytest

from weighbridge.masking.entities import TYPES, Span, merge
from weighbridge.masking.layers.base import Layer, LayerMissing, LayerOptions
from weighbridge.masking.layers.windows import WINDOW, by_windows, windows

OPTIONS = LayerOptions()


def build(name: str) -> Layer:
    layer: Layer = import_module(f"weighbridge.masking.layers.{name}").build(OPTIONS)
    return layer


@pytest.fixture(scope="module")
def kiwi() -> Layer:
    return build("kiwi")


def found(layer: Layer, text: str) -> list[tuple[str, str]]:
    return [(text[start:end], entity) for start, end, entity in merge(layer.find(text))]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("ko_pii", "주민번호 900101-1234568", ("900101-1234568", "RRN")),
        ("ko_pii", "사업자등록번호 120-81-47521", ("120-81-47521", "BRN")),
        ("ko_pii", "건강보험증 번호 1-2345678901", ("1-2345678901", "HEALTH")),
        ("ko_pii", "국민은행 계좌번호 123456-04-123456", ("123456-04-123456", "ACCOUNT")),
        ("ko_pii", "차량 12가3456 주차", ("12가3456", "PLATE")),
        ("tape", "신청인 홍길동님께", ("홍길동", "PERSON")),
        ("tape", "여권번호 M12345678 확인", ("M12345678", "PASSPORT")),
        (
            "tape",
            "주소: 부산광역시 해운대구 우동 1408번지 101동 302호",
            ("부산광역시 해운대구 우동 1408번지 101동 302호", "ADDRESS"),
        ),
    ],
)
def test_names_values_by_our_types(name: str, text: str, expected: tuple[str, str]) -> None:
    assert expected in found(build(name), text)


@pytest.mark.parametrize(
    ("name", "package"), [("ko_pii", "ko_pii"), ("tape", "maskingtape"), ("kiwi", "kiwipiepy")]
)
def test_is_missing_without_its_package(monkeypatch: pytest.MonkeyPatch, name: str, package: str) -> None:
    for module in [held for held in sys.modules if held.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(LayerMissing, match=package.replace("_", "-")):
        build(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # The particle stays outside.
        ("홍길동이 어제 왔다", [("홍길동", "PERSON")]),
        ("정책을 김형완 소장이 냈다", [("김형완", "PERSON")]),
        ("방송은 이수민에게 처음이다", [("이수민", "PERSON")]),
        ("진짜 재밌는 영화인 듯 박지빈 잘생김", [("박지빈", "PERSON")]),
        # Unknown to the analyser: foreign, or a nickname.
        ("존쿠샥과 스타뎀이 나온다", [("존쿠샥", "NAME"), ("스타뎀", "NAME")]),
        ("광희 씨가 웃었다", [("광희", "NAME")]),
        # Places beyond the basic plane count as one.
        ("😀😀 홍길동", [("홍길동", "PERSON")]),
        # Public, or nobody's.
        ("파이썬과 도커로 안전성과 민주화를 설명해 줘", []),
        ("ㅋㅋㅋㅋ ㅠㅠ 몇번을 다시 봤다", []),
        ("no hangul Here", []),
    ],
)
def test_kiwi_finds_names(kiwi: Layer, text: str, expected: list[tuple[str, str]]) -> None:
    assert found(kiwi, text) == expected


def test_only_kiwi_claims_to_find_names_in_prose(kiwi: Layer) -> None:
    claims = {name: build(name).names for name in ("ko_pii", "tape", "ko_rules")}
    assert kiwi.names == {"ko"} and set(claims.values()) == {frozenset()}


def test_starts_no_thread_and_prints_nothing() -> None:
    script = (
        "import os\n"
        "from weighbridge.masking.layers.base import LayerOptions\n"
        "from weighbridge.masking.layers import kiwi, ko_pii, ko_rules, tape\n"
        "layers = [module.build(LayerOptions()) for module in (kiwi, ko_pii, ko_rules, tape)]\n"
        "for layer in layers:\n"
        "    layer.find('홍길동 010-1234-5678 서울시 강남구 역삼동 1-1')\n"
        "raise SystemExit(len(os.listdir('/proc/self/task')))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


@pytest.mark.parametrize("name", ["ko_pii", "tape", "kiwi"])
@pytest.mark.parametrize(
    "unit", ["서울특별시 강남구 역삼동 1-1 101동 101호 ", "홍길동 ", "동1호", "1-", "김.", "(", "가 "]
)
def test_costs_time_linear_in_the_length(name: str, unit: str, kiwi: Layer) -> None:
    layer = kiwi if name == "kiwi" else build(name)

    def cost(length: int) -> float:
        text = (unit * (length // len(unit) + 1))[:length]
        start = time.process_time()
        layer.find(text)
        return time.process_time() - start

    # Eight times the text; a square would be sixty-four times. The second term is what a busy machine adds.
    assert cost(40_000) < 20 * cost(5_000) + 0.2


@pytest.mark.parametrize(
    "text", ["가나다 " * 3_000, "가" * 9_000, "a" * WINDOW, "가나다\n" * 700 + "라" * 3_000]
)
def test_windows_cover_the_text_and_share_their_edges(text: str) -> None:
    places = list(windows(text))
    assert places[0][0] == 0 and places[-1][1] == len(text)
    for (_, end), (start, _) in pairwise(places):
        assert end - 300 <= start < end
    assert all(last - first <= WINDOW + 600 for first, last in places)


def test_windows_give_places_of_the_whole_text() -> None:
    text = "가나다 " * 2_000 + "표적 " + "가나다 " * 2_000

    def look(piece: str) -> list[Span]:
        at = piece.find("표적")
        return [(at, at + 2, "NAME")] if at >= 0 else []

    assert {text[start:end] for start, end, _ in by_windows(text, look)} == {"표적"}


def test_reports_known_types_alone(kiwi: Layer) -> None:
    text = (
        "홍길동 010-1234-5678 900101-1234568 서울시 강남구 역삼동 1-1 국민은행 123456-04-123456 "
        "처방전 교부번호 2026-0001-1234 사건번호 2024가합12345 팩스 02-123-4567 우편번호 06236 "
        "a@b.kr https://a.kr 1990년 3월 2일생 민원번호 1AA-2401-0012345 사번 20231234"
    )
    layers = [kiwi, *map(build, ("ko_pii", "tape", "ko_rules"))]
    types = {entity for layer in layers for _, _, entity in layer.find(text)}
    assert types <= set(TYPES) and len(types) > 6
