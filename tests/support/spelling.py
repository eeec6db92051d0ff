"""A fake engine that spells a given text byte by byte: each byte is a token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pytest

from tests.support import fake_engine, fake_tokens

SPLIT_TEXT: Final = "한글 값 뷁 \u1112\u1161\u11ab\u1100\u1173\u11af ㅎㅏㄴ 🙂👩‍👩‍👧🇰🇷 漢字 é \U0001f9ea끝"
"""Syllables, conjoining and compatibility jamo, emoji with joiners and flags: one to four bytes a character."""


def spells(monkeypatch: pytest.MonkeyPatch, text: str) -> int:
    """Make every fake engine answer `text`, over and over.

    Returns:
        The tokens of `text`.
    """
    letters = list(text.encode())

    def ids(prompt: str, before: Iterable[int]) -> Iterator[int]:
        at = len(list(before))
        while True:
            yield letters[at % len(letters)]
            at += 1

    vocabulary = [bytes([byte]) for byte in range(256)]
    monkeypatch.setattr(fake_tokens, "VOCABULARY", vocabulary)
    monkeypatch.setattr(fake_engine, "VOCABULARY", vocabulary)
    monkeypatch.setattr(fake_engine, "make_ids", ids)
    return len(letters)
