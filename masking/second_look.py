"""The last look, at the very bytes that are about to leave.

It trusts nothing that masking did: it reads the bytes as the provider will, and looks at every string, key and number
with the structured rules, for seven digits in a row and for any `@`. It knows no names. What masking passed in the
ordinary way it passes too, since masking asks the same of the same pieces of text.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import msgspec
import regex

from weighbridge.masking.backstop import leftovers
from weighbridge.masking.entities import PLACEHOLDER, Span, gap_places, merge
from weighbridge.masking.folding import fold, fold_text
from weighbridge.masking.layers.patterns import PATTERNS
from weighbridge.masking.vault import MOST_DIGITS
from weighbridge.masking.walker import is_long

_FLAGS = regex.DOTALL | regex.MULTILINE | regex.IGNORECASE | regex.ASCII
# The dearest rule by far begins like any word. A text without its middle needs no search for it; a rule that is written
# anew, without these very words, is always searched for.
_MIDDLE = r"(?:[\[({<] ?at ?[\])}>]|골뱅이|=40)"
_RULES = [
    (
        entity,
        regex.compile(expression, _FLAGS),
        regex.compile(_MIDDLE, _FLAGS) if _MIDDLE in expression else None,
    )
    for entity, _, expression in PATTERNS
]
_ROUNDS = 4
# Without one of these no rule can hit; most keys and short words end here.
_WORTH_A_LOOK = regex.compile(r"[0-9@:]|www\.|골뱅이|at ?[\])}>]", regex.IGNORECASE)
# Unlike `re`, it lets other threads run while it searches.
_PLACEHOLDER = regex.compile(PLACEHOLDER.pattern)
_SAMPLING = frozenset({"temperature", "top_p", "presence_penalty", "frequency_penalty"})
# Made by us in place of the caller's (see `body`): letters and the digits 2 to 7.
_CALL_ID = regex.compile(r"call_[A-Z2-7]{24}")
_CALL_ID_KEYS = frozenset({"id", "tool_call_id"})


def found(body: bytes, *, ours: Collection[str] = ()) -> bool:
    """Whether a masked body still holds what must not leave; one that cannot be read does.

    Costs time linear in the length of `body`, and runs outside the event loop where that is long.

    Args:
        body: the final bytes.
        ours: strings of our own configuration that may stand in the body as they are, such as the model's name.
    """
    try:
        document = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return True
    if not isinstance(document, dict):
        return True
    if document.get("model") in ours:
        del document["model"]
    for field in _SAMPLING & document.keys():
        if _is_sampling(document[field]):
            del document[field]
    return _Look().hits(document)


def _is_sampling(value: Any) -> bool:
    """0.1234 and 999.1234 are numbers for sampling; the body builder rounds them so."""
    return isinstance(value, int | float) and abs(value) < 1000 and round(value, 4) == value


class _Look:
    """Looks at values, at each text once."""

    def __init__(self) -> None:
        self._clean: set[str] = set()

    def hits(self, value: Any) -> bool:
        """Whether anything in a JSON value must not leave."""
        waiting: list[tuple[Any, str]] = [(value, "")]
        while waiting:
            node, key = waiting.pop()
            if isinstance(node, str):
                if not (key in _CALL_ID_KEYS and _CALL_ID.fullmatch(node)) and self._in_string(node):
                    return True
            elif isinstance(node, dict):
                if any(map(self._in_text, node)):
                    return True
                waiting.extend((item, name) for name, item in node.items())
            elif isinstance(node, list):
                waiting.extend((item, "") for item in node)
            elif isinstance(node, int | float) and not isinstance(node, bool) and is_long(node):
                return True
        return False

    def _in_string(self, text: str) -> bool:
        """In JSON inside a string every value counts by itself, as the masker masks it: [1234,5678] is no number."""
        escapes = "\\" in text
        if not escapes and not self._in_text(text):
            return False
        if text.lstrip()[:1] in ("{", "["):
            try:
                inner = msgspec.json.decode(text)
            except (msgspec.MsgspecError, RecursionError):
                inner = None
            if inner is not None:
                return self.hits(inner)
        return self._in_text(text)

    def _in_text(self, text: str) -> bool:
        if text in self._clean:
            return False
        if any(map(_tells, _between_placeholders(text))):
            return True
        self._clean.add(text)
        return False


def _between_placeholders(text: str) -> Iterator[str]:
    """What stands around placeholders. One of more digits than we ever make is none, and stays in."""
    done = 0
    for hit in _PLACEHOLDER.finditer(text):
        if sum(map(str.isdigit, hit[2])) <= MOST_DIGITS:
            yield text[done : hit.start()]
            done = hit.end()
    yield text[done:]


def _tells(text: str) -> bool:
    return bool(leftovers(text)) or next(_hits(fold_text(text)), None) is not None


def _hits(folded: str) -> Iterator[tuple[int, int, str]]:
    """Where the rules hit in a folded text, in no order."""
    if not _WORTH_A_LOOK.search(folded):
        return
    for entity, rule, middle in _RULES:
        if middle is None or middle.search(folded):
            yield from ((*hit.span(), entity) for hit in rule.finditer(folded))


def remains(text: str) -> list[Span]:
    """What the second look finds in a text between placeholders, as merged spans.

    Once these are masked too, it finds nothing more: where a placeholder cuts a text, a rule may hit that did not
    before, so the pieces are looked at again, and one in which that does not end is masked whole.
    """
    spans: list[Span] = []
    pieces = [(0, len(text))]
    for _ in range(_ROUNDS):
        dirty = [(first, last, hits) for first, last in pieces if (hits := _spans(text[first:last]))]
        spans += [
            (first + start, first + end, entity) for first, _, hits in dirty for start, end, entity in hits
        ]
        pieces = [
            (first + start, first + end)
            for first, last, hits in dirty
            for start, end in gap_places(text[first:last], hits)
        ]
        if not pieces:
            return merge(spans)
    return merge([*spans, *((first, last, "NUM") for first, last in pieces if _tells(text[first:last]))])


def _spans(text: str) -> list[Span]:
    left = leftovers(text)
    hits = list(_hits(fold_text(text)))
    if not hits:
        return left
    folded = fold(text)
    return merge((*left, *((*folded.original_span(start, end), entity) for start, end, entity in hits)))
