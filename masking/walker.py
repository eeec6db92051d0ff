"""Walking JSON values: every string becomes a place to be filled in once its masked form is known.

First pass: a copy of the value is built with a node wherever text stood, and the texts are gathered, each once. Second
pass: the nodes are filled in. Nothing of the original value is shared with the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from weighbridge.masking.backstop import MIN_DIGITS
from weighbridge.masking.errors import MaskingRefused

MAX_DEPTH = 64
_MOST_DIGITS = 40

# Limits of number types and round bounds stand in every generated JSON schema and are nobody's number.
_BOUNDS = frozenset(
    sign * (power - less)
    for power in (*(2**k for k in range(20, 65)), *(10**k for k in range(6, 20)))
    for less in (0, 1)
    for sign in (1, -1)
)


@dataclass(frozen=True, slots=True)
class Leaf:
    """Text number `at` of those gathered, masked by what is found in it."""

    at: int


@dataclass(frozen=True, slots=True)
class Whole:
    """Text that is replaced by one placeholder of type `entity`, whatever it holds."""

    entity: str
    text: str


@dataclass(frozen=True, slots=True)
class JsonText:
    """A string that holds JSON, walked inside and written out again."""

    tree: Any


Fill = Callable[[Leaf | Whole], str]


class Walker:
    """Gathers the texts of one request.

    Attributes:
        texts: what detectors must look at, each text once.
        names: places in `texts` of keys and names. They cannot be replaced, so a hit in one refuses the request.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.names: set[int] = set()
        self._places: dict[str, int] = {}

    def text(self, value: str, depth: int = 0) -> Leaf | JsonText:
        """A string from anywhere. JSON in it is walked when escapes could hide something from the detectors."""
        if "\\" in value and value.lstrip()[:1] in ("{", "["):
            try:
                inner = msgspec.json.decode(value)
            except (msgspec.MsgspecError, RecursionError):
                return Leaf(self._place(value))
            return JsonText(self.value(inner, depth + 1))
        return Leaf(self._place(value))

    def name(self, value: str) -> str:
        """A key or name that must reach the other side as it is."""
        self.names.add(self._place(value))
        return value

    def arguments(self, value: str, depth: int = 0) -> str | JsonText:
        """The JSON in a tool call's arguments. Raises MaskingRefused when it is none."""
        if not value.strip():
            return value
        try:
            inner = msgspec.json.decode(value)
        except (msgspec.MsgspecError, RecursionError):
            raise MaskingRefused("bad_arguments") from None
        return JsonText(self.value(inner, depth + 1))

    def value(self, value: Any, depth: int = 0, *, schema: bool = False) -> Any:
        """Any JSON value. In a schema a long number cannot become text, so it refuses the request."""
        if depth > MAX_DEPTH:
            raise MaskingRefused("unknown_field_type")
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self.text(value, depth)
        if isinstance(value, int | float):
            if not is_long(value):
                return value
            if schema:
                raise MaskingRefused("number")
            return Whole("NUM", number_text(value))
        if isinstance(value, list):
            return [self.value(item, depth + 1, schema=schema) for item in value]
        if isinstance(value, dict):
            return {
                self.name(_string(key)): self.value(item, depth + 1, schema=schema)
                for key, item in value.items()
            }
        raise MaskingRefused("unknown_field_type")

    def _place(self, text: str) -> int:
        place = self._places.get(text)
        if place is None:
            if not text.isascii():
                _encodable(text)
            place = self._places[text] = len(self.texts)
            self.texts.append(text)
        return place


def render(tree: Any, fill: Fill) -> Any:
    """The walked value with every node filled in."""
    if isinstance(tree, Leaf | Whole):
        return fill(tree)
    if isinstance(tree, JsonText):
        return msgspec.json.encode(render(tree.tree, fill)).decode()
    if isinstance(tree, list):
        return [render(item, fill) for item in tree]
    if isinstance(tree, dict):
        return {key: render(item, fill) for key, item in tree.items()}
    return tree


def total_chars(texts: Sequence[str]) -> int:
    return sum(map(len, texts))


def is_long(value: float) -> bool:
    """Whether a number has as many digits as an identifier. `value` is an int or a float."""
    if isinstance(value, int):
        return abs(value) >= 10 ** (MIN_DIGITS - 1) and value not in _BOUNDS
    return sum(map(str.isdigit, repr(value))) >= MIN_DIGITS


def number_text(value: float) -> str:
    if isinstance(value, int) and abs(value) >= 10**_MOST_DIGITS:
        raise MaskingRefused("number")
    return repr(value)


def _string(key: Any) -> str:
    if not isinstance(key, str):
        raise MaskingRefused("unknown_field_type")
    return key


def _encodable(text: str) -> None:
    """Half a surrogate pair is no text; neither the pipe nor the provider could take it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise MaskingRefused("unknown_field_type") from None
