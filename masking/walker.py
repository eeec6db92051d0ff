"""Walking JSON values: every string becomes a place to be filled in once its masked form is known.

First pass: a copy of the value is built with a node wherever text stood, and the texts are gathered, each once. Second
pass: the nodes are filled in. Nothing of the original value is shared with the copy.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from weighbridge.masking.backstop import MIN_DIGITS
from weighbridge.masking.errors import MaskingRefused

MAX_DEPTH = 64
MAX_NODES, MAX_TEXTS = 20_000, 4_000
"""JSON values and distinct texts of one request. Each costs time whatever its length, here and in the detectors."""
_BORDER_REACH = 128
_NUMBER_REACH = 24
_NUMERIC = re.compile(r"[\d@]")
_MOST_DIGITS = 40
_SHORT = 200
# Keys beside which a value tells who somebody is, though it may not by itself.
_TELLING = re.compile(
    "name|addr|street|city|town|birth|phone|mobile|tel|contact|mail|person|people|customer|client|patient|member|employee"
    "|user|pass|pwd|secret|token|key|author|sender|recipient|owner|guest|student|passport|licen[sc]e|account|ssn|card|plate|zip|post"
    "|이름|성명|성함|고객|환자|회원|직원|사원|담당|보호자|수신|발신|받는|보내는|주소|거주|생년|생일|연락|전화|휴대|계좌|여권|면허|차량"
    "|우편|비밀|암호",
    re.IGNORECASE,
)

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


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a probe that is the text `place` from `offset` on."""

    start: int
    end: int
    place: int
    offset: int


@dataclass(frozen=True, slots=True)
class Probe:
    """Text number `at`: what a reader sees around the borders of adjoining texts, or of a value beside its key.

    `labelled`: it is a value beside its key, so that what lies in its one piece counts.
    """

    at: int
    pieces: tuple[Piece, ...]
    labelled: bool = False


Fill = Callable[[Leaf | Whole], str]


class Walker:
    """Gathers the texts of one request.

    Attributes:
        texts: what detectors must look at, each text once.
        names: places in `texts` of keys and names. They cannot be replaced, so a hit in one refuses the request.
        probes: texts that stand in no place of their own.

    Args:
        max_chars: characters of all texts together. More than this, or than `MAX_NODES` or `MAX_TEXTS`, refuses the
            request (`too_large`) at the first one too many.
    """

    def __init__(self, max_chars: int = 200_000) -> None:
        self.texts: list[str] = []
        self.names: set[int] = set()
        self.probes: list[Probe] = []
        self._places: dict[str, int] = {}
        self._nodes_left = MAX_NODES
        self._chars_left = max_chars

    def count(self) -> None:
        """Note one more value."""
        self._nodes_left -= 1
        if self._nodes_left < 0:
            raise MaskingRefused("too_large")

    def text(self, value: str, depth: int = 0) -> Leaf | JsonText:
        """A string from anywhere. JSON in it is walked when escapes could hide something from the detectors."""
        if "\\" in value and value.lstrip()[:1] in ("{", "["):
            try:
                inner = self._decoded(value)
            except (msgspec.MsgspecError, RecursionError):
                return self.plain(value)
            return JsonText(self.value(inner, depth + 1))
        return self.plain(value)

    def plain(self, value: str) -> Leaf:
        """A string in which no JSON is looked for."""
        self.count()
        return Leaf(self._place(value))

    def whole(self, entity: str, value: str) -> Whole:
        """Text that is a value as it stands."""
        self.count()
        self._spend(len(value))
        return Whole(entity, value)

    def adjoin(self, nodes: list[Leaf | JsonText]) -> None:
        """Note that these stand one behind the other, so that a value may begin in one and end in the next."""
        run: list[int] = []
        for node in nodes:
            if isinstance(node, Leaf):
                run.append(node.at)
                continue
            self._probe(run)
            run = []
        self._probe(run)

    def adjoin_numbers(self, first: Leaf | JsonText, second: Leaf | JsonText) -> None:
        """Note that a number may begin in one and end in the other; costs nothing where none can."""
        if not (isinstance(first, Leaf) and isinstance(second, Leaf)):
            return
        ahead, behind = self.texts[first.at][-_NUMBER_REACH:], self.texts[second.at][:_NUMBER_REACH]
        if _NUMERIC.search(ahead) and _NUMERIC.search(behind):
            self._probe([first.at, second.at], _NUMBER_REACH)

    def _probe(self, run: list[int], reach: int = _BORDER_REACH) -> None:
        run = [place for place in run if self.texts[place]]
        ends: list[int] = []
        for place in run:
            ends.append((ends[-1] if ends else 0) + len(self.texts[place]))
        reaches: list[tuple[int, int]] = []
        for border in ends[:-1]:
            first, last = max(0, border - reach), min(ends[-1], border + reach)
            if reaches and first < reaches[-1][1]:
                reaches[-1] = (reaches[-1][0], last)
            else:
                reaches.append((first, last))
        at = 0
        for first, last in reaches:
            while ends[at] <= first:
                at += 1
            pieces: list[Piece] = []
            read: list[str] = []
            while at < len(run):
                begin = ends[at] - len(self.texts[run[at]])
                if begin >= last:
                    break
                start, end = max(first, begin), min(last, ends[at])
                pieces.append(Piece(start - first, end - first, run[at], start - begin))
                read.append(self.texts[run[at]][start - begin : end - begin])
                at += 1
            self.probes.append(Probe(self._place("".join(read)), tuple(pieces)))
            at -= 1

    def name(self, value: str) -> str:
        """A key or name that must reach the other side as it is."""
        self.count()
        self.names.add(self._place(value))
        return value

    def arguments(self, value: str, depth: int = 0) -> str | JsonText:
        """The JSON in a tool call's arguments. Raises MaskingRefused when it is none."""
        if not value.strip():
            return value
        try:
            inner = self._decoded(value)
        except (msgspec.MsgspecError, RecursionError):
            raise MaskingRefused("bad_arguments") from None
        return JsonText(self.value(inner, depth + 1))

    def value(self, value: Any, depth: int = 0, *, schema: bool = False) -> Any:
        """Any JSON value. In a schema a long number cannot become text, so it refuses the request."""
        if depth > MAX_DEPTH:
            raise MaskingRefused("unknown_field_type")
        if isinstance(value, str):
            return self.text(value, depth)
        self.count()
        if value is None or isinstance(value, bool):
            return value
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
                self.name(_string(key)): self._labelled(key, self.value(item, depth + 1, schema=schema))
                for key, item in value.items()
            }
        raise MaskingRefused("unknown_field_type")

    def _labelled(self, key: str, node: Any) -> Any:
        """Have a short value looked at beside its key too, where that says what it is."""
        if isinstance(node, Leaf) and len(value := self.texts[node.at]) <= _SHORT and _TELLING.search(key):
            before = f'"{key}": "'
            piece = Piece(len(before), len(before) + len(value), node.at, 0)
            if value:
                self.probes.append(Probe(self._place(f'{before}{value}"'), (piece,), labelled=True))
        return node

    def _decoded(self, value: str) -> Any:
        if len(value) > self._chars_left:
            raise MaskingRefused("too_large")
        return msgspec.json.decode(value)

    def _spend(self, chars: int) -> None:
        self._chars_left -= chars
        if self._chars_left < 0:
            raise MaskingRefused("too_large")

    def _place(self, text: str) -> int:
        place = self._places.get(text)
        if place is None:
            self._spend(len(text))
            if len(self.texts) == MAX_TEXTS:
                raise MaskingRefused("too_large")
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
