"""Placeholders: how they are made, and what they stand for."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections import Counter
from collections.abc import Mapping
from typing import final

from weighbridge.masking.entities import TOKEN_LENGTH
from weighbridge.masking.errors import MaskingRefused
from weighbridge.masking.folding import fold_text

MOST_DIGITS = 4
"""Digits among the eight characters of a placeholder: more would look like a number to a second look."""
MAX_VALUES = 4_000
"""Distinct values of one request. More are a table of people rather than a question, and seconds of work."""


def derive_key(secret: bytes, purpose: str, *parts: str) -> bytes:
    """A 32-byte key for one purpose and, say, one conversation; keys of different parts are independent."""
    return hmac.digest(secret, _joined(purpose, *parts), hashlib.sha256)


def _joined(*parts: str) -> bytes:
    """Parts as bytes that no other sequence of parts gives."""
    encoded = [part.encode("utf-8", "surrogatepass") for part in parts]
    return b"".join(len(part).to_bytes(8, "big") + part for part in encoded)


def opaque(key: bytes, length: int, *parts: str) -> str:
    """`length` characters of A-Z2-7 that tell nothing about `parts` without the key."""
    digest = hmac.digest(key, _joined(*parts), hashlib.sha256)
    return base64.b32encode(digest)[:length].decode()


@final
class Vault:
    """What the placeholders of one request stand for. Immutable; in memory only.

    Args:
        originals: placeholder to the text as the user wrote it.
        json_answer: whether the answer's content was asked for as JSON, so that values must be escaped in it.
    """

    __slots__ = ("_likely", "_originals", "_starts", "json_answer")

    def __init__(self, originals: Mapping[str, str], json_answer: bool = False) -> None:
        self._originals = dict(originals)
        self._likely: dict[str, str | None] = {}
        for token, original in originals.items():
            plain = token.upper()
            self._likely[plain] = None if plain in self._likely else original
        self._starts = frozenset(token[:end] for token in self._likely for end in range(1, len(token)))
        self.json_answer = json_answer

    def __len__(self) -> int:
        return len(self._originals)

    def __repr__(self) -> str:
        return f"Vault({len(self)} placeholders)"

    def original(self, placeholder: str) -> str | None:
        """What exactly this placeholder stands for; None when it is none of these."""
        return self._originals.get(placeholder)

    def likely(self, placeholder: str) -> str | None:
        """What a changed placeholder stands for, given as it would read in capitals and without the changes; None
        when it is none of these, or could be two."""
        return self._likely.get(placeholder)

    def could_begin(self, text: str) -> bool:
        """Whether `text` is the beginning, and not the whole, of one of these placeholders in capitals."""
        return text in self._starts


class Mint:
    """Makes the placeholders of one request.

    A placeholder is `[TYPE_` + eight characters + `]`: a fixed length for its type and a closing delimiter, so that
    none is a prefix of another. It derives from the conversation's key, the type and the folded value, so one
    value has one placeholder over a conversation. A value in another spelling than its folded one gets its own, since
    each must come back as it was written.
    """

    def __init__(self, conversation_key: bytes) -> None:
        self._key = conversation_key
        self._originals: dict[str, str] = {}
        self._made: dict[tuple[str, str], str] = {}

    def placeholder(self, entity: str, original: str) -> str:
        """The placeholder for a value. Raises MaskingRefused at more than `MAX_VALUES`."""
        made = self._made.get((entity, original))
        if made is None:
            if len(self._made) == MAX_VALUES:
                raise MaskingRefused("too_large")
            made = self._made[entity, original] = self._fresh(entity, original)
            self._originals[made] = original
        return made

    def _fresh(self, entity: str, original: str) -> str:
        folded = fold_text(original)
        parts = (entity, folded) if folded == original else (entity, folded, original)
        attempt = 0
        while True:
            token = opaque(self._key, TOKEN_LENGTH, *parts, *(() if not attempt else (str(attempt),) * 3))
            candidate = f"[{entity}_{token}]"
            # Taken is one in 10^12.
            if sum(map(str.isdigit, token)) <= MOST_DIGITS and candidate not in self._originals:
                return candidate
            attempt += 1

    def counts(self) -> dict[str, int]:
        """Distinct masked values by type."""
        return dict(sorted(Counter(entity for entity, _ in self._made).items()))

    def vault(self, json_answer: bool) -> Vault:
        return Vault(self._originals, json_answer)
