"""Look-alike letters, and formulas and Korean that only look like them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.masking.entities import MIXED
from weighbridge.masking.folding import fold_text
from weighbridge.masking.layers.base import LayerOptions
from weighbridge.masking.layers.mixed_script import build

LAYER = build(LayerOptions())
CYRILLIC = str.maketrans("aeopcxyABEKMHOPCTX", "аеорсхуАВЕКМНОРСТХ")
GREEK = str.maketrans("oABEHIKMNOPTXYZ", "οΑΒΕΗΙΚΜΝΟΡΤΧΥΖ")


def found(text: str) -> list[str]:
    folded = fold_text(text)
    hits = LAYER.find(folded)
    assert {entity for _, _, entity in hits} <= {MIXED}
    return [folded[start:end] for start, end, _ in hits]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Jоhn Smith", "Jоhn"),
        ("John Ѕmith", "Ѕmith"),
        ("hong@ехample.com", "ехample"),
        ("Κim Minsu", "Κim"),
        ("Jοhn", "Jοhn"),
        ("Jαmes Brown", "Jαmes"),
        ("Ꭺlice met us", "Ꭺlice"),
        ("Օliver met us", "Օliver"),
        ("by ᴊᴏʜɴ today", "ᴊᴏʜɴ"),
        ("J\u200bо\u200bhn", "Jоhn"),
        ("담당자 Jоhn은", "Jоhn은"),
        ("🅙🅞🅗🅝 is here", "🅙🅞🅗🅝"),
        ("O1O-1234-5678", "O1O-1234-5678"),
        ("전화 01O-l234-5678입니다", "01O-l234-5678"),
        ("9OOlOl-1234567", "9OOlOl-1234567"),
    ],
)
def test_look_alikes_are_found(text: str, word: str) -> None:
    assert found(text) == [word]


@pytest.mark.parametrize(
    "text",
    [
        "API를 호출하는 Python코드와 LG전자, K팝, e메일, 3M사",
        "α + β = Δ, Δt = 0.5 μs, x² + λx, sinαcosβ − cosαsinβ, ρgh, kB, θmax, Ωm, αβγ, β-carotene, dα",
        "α값과 β는, 수준 μ와 σ를 모를 때, ΔABC, πr²",
        "café naïve Zürich Łódź Nguyễn İstanbul façade",
        "Москва и Київ",
        "Ελλάδα και Αθήνα",
        "金哲洙 대표, 田中さん",
        "/ˈɡɑːrdən/ and [ɹɪˈzʌlt]",
        "OlO-lOll-1O1I and LOLO OLI 100-1000-1000 Oil 2010",
        "𝐉𝐨𝐡𝐧 𝒥𝑜ℎ𝓃 Ｊｏｈｎ",
        "🇰🇷🇺🇸🇯🇵 🅰️ 🅱️",
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert found(text) == []


@settings(deadline=None)
@given(
    st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyzABCDEHKMOPTX"), min_size=3, max_size=12),
    st.integers(0, 11),
    st.sampled_from([CYRILLIC, GREEK]),
)
def test_any_letter_of_any_name(word: str, place: int, table: dict[int, int]) -> None:
    place %= len(word)
    written = word[:place] + word[place].translate(table) + word[place + 1 :]
    assert found(f"Dear {written}, hello") == ([written] if written != word else [])


@pytest.mark.parametrize("piece", ["aо", "Jоhn ", "α", "O1O-1", "0-", "🅙", "ᴊ", "0O1l"])
def test_hostile_text_costs_linear_time(piece: str) -> None:
    def cost(length: int) -> float:
        text = piece * (length // len(piece))
        begun = time.process_time()
        LAYER.find(text)
        return time.process_time() - begun

    cost(2_000)
    assert cost(100_000) < max(12 * cost(20_000), 0.2)
