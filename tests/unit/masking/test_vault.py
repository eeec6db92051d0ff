"""Placeholders."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.masking import vault as vault_module
from weighbridge.masking.backstop import leftovers
from weighbridge.masking.entities import LONGEST, PLACEHOLDER, TYPES
from weighbridge.masking.vault import Mint, Vault, derive_key

KEY = derive_key(b"secret", "placeholders", "tenant/conversation")
values = st.lists(st.tuples(st.sampled_from(TYPES), st.text(min_size=1)), min_size=1, max_size=40)


@settings(deadline=None)
@given(values)
def test_shape_and_way_back(found: list[tuple[str, str]]) -> None:
    mint = Mint(KEY)
    made = {pair: mint.placeholder(*pair) for pair in found}
    kept = mint.vault(json_answer=False)
    assert len(set(made.values())) == len(made) == len(kept)
    for (entity, original), placeholder in made.items():
        match = PLACEHOLDER.fullmatch(placeholder)
        assert match is not None
        assert match.group(1) == entity
        assert len(placeholder) <= LONGEST
        assert kept.original(placeholder) == original
        assert leftovers(placeholder) == []
    tokens = list(made.values())
    assert not any(one != other and one.startswith(other) for one in tokens for other in tokens)


@settings(deadline=None)
@given(values)
def test_the_same_value_has_the_same_placeholder_whatever_came_before(found: list[tuple[str, str]]) -> None:
    first, second = Mint(KEY), Mint(KEY)
    made = [first.placeholder(*pair) for pair in found]
    assert [second.placeholder(*pair) for pair in reversed(found)][::-1] == made


def test_conversations_and_types_do_not_share_placeholders() -> None:
    other = Mint(derive_key(b"secret", "placeholders", "tenant/other"))
    assert Mint(KEY).placeholder("NUM", "1234567") != other.placeholder("NUM", "1234567")
    assert Mint(KEY).placeholder("NUM", "1234567")[-9:] != Mint(KEY).placeholder("RRN", "1234567")[-9:]


def test_two_spellings_of_one_value_are_kept_apart() -> None:
    mint = Mint(KEY)
    plain, wide = mint.placeholder("NUM", "1234567"), mint.placeholder("NUM", "１２３４５６７")
    assert plain != wide
    kept = mint.vault(json_answer=False)
    assert (kept.original(plain), kept.original(wide)) == ("1234567", "１２３４５６７")
    assert mint.counts() == {"NUM": 2}


def test_two_values_that_hash_alike_are_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        vault_module, "opaque", lambda key, length, *parts: "ABCDEFGH" if len(parts) == 2 else "BCDEFGHA"
    )
    mint = Mint(KEY)
    assert mint.placeholder("NUM", "1234567") == "[NUM_ABCDEFGH]"
    assert mint.placeholder("NUM", "7654321") == "[NUM_BCDEFGHA]"


def test_a_vault_does_not_show_its_values() -> None:
    kept = Vault({"[NUM_ABCDEFGH]": "1234567"})
    assert "1234567" not in repr(kept)
    assert "1234567" not in str(kept)


def test_beginnings() -> None:
    kept = Vault({"[NUM_ABCDEFGH]": "1234567"})
    assert kept.could_begin("[")
    assert kept.could_begin("[NUM_ABCDEFGH")
    assert not kept.could_begin("[NUM_ABCDEFGH]")
    assert not kept.could_begin("[IP_")
    assert not kept.could_begin("")
