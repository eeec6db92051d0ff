"""What was found in texts that were looked at before, without the texts: places and types only.

A chat sends its whole history with every turn. With this, only what is new in it goes to the detectors.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from weighbridge.masking.entities import REFUSED, TYPES, Span

MAX_ENTRIES = 32_768
"""Texts. About 250 bytes each without what was found in them: 8 MB, and a thousand chats of some thirty messages."""
MAX_SPANS = 131_072
"""Spans over all texts. About 130 bytes each: 17 MB; four for every text, which is more than prose holds."""
_LARGEST = MAX_SPANS // 16
"""Spans of one text. A table with more would push out what many chats need."""

_ONE_OF_EACH = {entity: entity for entity in (*REFUSED, *TYPES)}

Key = bytes
"""Keyed hash of an owner, a detector version and a text."""

Kept = tuple[Span, ...]


def kept(found: Sequence[Span]) -> Kept:
    """What was found in a text as the cache keeps it: a type's name is there once, not with every span. Takes a
    quarter of a microsecond a span, and may run beside the event loop."""
    return tuple((start, end, _ONE_OF_EACH.get(kind, kind)) for start, end, kind in found)


class SpanCache:
    """The least recently used goes first.

    Nobody can tell from a key, not even with the text in hand, whether the text was seen: the hash is keyed with random
    bytes of this object's own. Owners share nothing, so how fast an answer comes tells nothing about others' texts.
    """

    def __init__(
        self,
        *,
        max_entries: int = MAX_ENTRIES,
        max_spans: int = MAX_SPANS,
        largest: int = _LARGEST,
        random_bytes: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        self._max_entries = max_entries
        self._max_spans = max_spans
        self._largest = largest
        self._secret = random_bytes(hashlib.blake2b.MAX_KEY_SIZE)
        self._held: OrderedDict[Key, Kept] = OrderedDict()
        self._spans = 0

    def __len__(self) -> int:
        return len(self._held)

    @property
    def spans(self) -> int:
        """Of all texts together."""
        return self._spans

    def keys(self, owner: str, version: str, texts: Iterable[str]) -> list[Key]:
        """The key of each text. May run beside the event loop."""
        common = hashlib.blake2b(key=self._secret, digest_size=32)
        for name in (owner, version):
            encoded = _encoded(name)
            # With its length, so that no owner's name can run on into a version or a text.
            common.update(len(encoded).to_bytes(8, "big") + encoded)
        keys: list[Key] = []
        for text in texts:
            one = common.copy()
            one.update(_encoded(text))
            keys.append(one.digest())
        return keys

    def get(self, key: Key) -> list[Span] | None:
        """What was found in the text of this key; None when that is not known."""
        found = self._held.get(key)
        if found is None:
            return None
        self._held.move_to_end(key)
        return list(found)

    def put(self, key: Key, found: Kept) -> None:
        """Keep what was found, if it is not too much."""
        if len(found) > self._largest:
            return
        self._spans -= len(self._held.pop(key, ()))
        self._held[key] = found
        self._spans += len(found)
        while len(self._held) > self._max_entries or self._spans > self._max_spans:
            _, oldest = self._held.popitem(last=False)
            self._spans -= len(oldest)


def _encoded(text: str) -> bytes:
    # Half of a surrogate pair, which JSON may hold, is a character like others here.
    return text.encode("utf-8", "surrogatepass")
