"""Encoded runs: text that hides a value, or more than anyone can tell.

What decodes to readable text refuses: a name could be in it. So does a run too long to be a checksum. Checksums and
other short random runs (40 hexadecimal digits of a commit, 64 of a SHA-256, 88 of a SHA-512 in base64) are masked as
ID, since they tell nobody anything and developers write about them.
"""

from __future__ import annotations

import quopri
import re
import urllib.parse
from collections.abc import Callable, Iterator
from itertools import islice

import regex

from weighbridge.masking.backstop import leftovers
from weighbridge.masking.entities import ENCODED, Span, merge
from weighbridge.masking.layers import decoding
from weighbridge.masking.layers.base import LayerOptions
from weighbridge.masking.layers.joined import joined
from weighbridge.masking.layers.patterns import PATTERNS

LONGEST_CHECKSUM = 96
"""Characters of random base64 that are still taken for a checksum: SHA-512 has 88, with `sha512-` before it 95."""
LONGEST_HEX = 128
"""The same for hexadecimal digits: SHA-512 has 128."""
_SHORTEST_ID, _SHORTEST_HEX_ID = 22, 32
_SHORTEST_TEXT, _FEW_KINDS = 12, 6
_RANDOM, _SHORT_RANDOM, _LONG_RANDOM = 0.33, 0.4, 0.25
_SHORTEST_RUN, _MOST_BORDERS, _SHORTEST_PACKED = 8, 6, 16
_LONGEST_VALUE = 24
"""Bytes of a value that is looked for by itself."""
_MOST_DECODED = 4096
"""Characters of one run that are decoded: what hides a value hides it in its beginning as well, and a longer run is
refused for its length."""

_RUN = re.compile(r"[A-Za-z0-9+/_-]{8,}+={0,2}")
_LINES = re.compile(r"[A-Za-z0-9+/_-]{4,}+(?:[ \t]{0,4}\r?\n[ \t>]{0,8}[A-Za-z0-9+/_-]{2,}+)+={0,2}")
_NO_LETTER = re.compile(r"[0-9/_+=-]*\Z")
_BORDERS = re.compile(r"[/_\-+]")
_HEX = re.compile(
    r"(?<![0-9A-Za-z])(?:0[xX])?(?P<run>[0-9A-Fa-f]{12,}+)(?![0-9A-Za-z])|(?P<long>[0-9A-Fa-f]{16,}+)"
)
_HEX_PAIRS = re.compile(
    r"(?<![0-9A-Za-z])(?:0x|\\x)?[0-9A-Fa-f]{2}(?:[ :,;-]{1,2}(?:0x|\\x)?[0-9A-Fa-f]{2}(?![0-9A-Za-z])){5,}"
)
_HEX_LINES = re.compile(
    r"(?<![0-9A-Za-z])[0-9A-Fa-f]{8,}+(?:[ \t]{0,4}\r?\n[ \t>]{0,8}[0-9A-Fa-f]{8,}+)+(?![0-9A-Za-z])"
)
_NOT_HEX = re.compile(r"0x|\\x|[^0-9A-Fa-f]")
_BASE32 = re.compile(r"(?<![A-Za-z0-9])(?:[A-Z2-7]{14,}+|[a-z2-7]{14,}+)={0,6}(?![A-Za-z0-9])")
_PERCENT_RUN = re.compile(r"(?:%[0-9A-Fa-f]{2}){3,}+")
_QUOTED = re.compile(r"(?:=[0-9A-Fa-f]{2}(?:=\r?\n)?){3,}+")
_MAIL_WORD = re.compile(r"=\?[\w-]{2,32}\?[bBqQ]\?[^?\s]{4,}+\?=")
_DATA_ADDRESS = re.compile(r"data:[\w.+/-]{0,64}(?:;[\w=.+-]{1,64}){0,4},[^\s\"'<>)]{4,}+", re.IGNORECASE)
_ASCII85 = re.compile(r"<~[!-uz\s]{10,}?~>")
_UUENCODED = re.compile(r"^begin(?:-base64)? [0-7]{3,4} \S", re.MULTILINE)
_CONTROLS = re.compile(
    "(?:[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f\ufffd][^\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x9f\ufffd]{0,4}){8,}+"
)
_ADDRESS_BEGINS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,15}://|www\.", re.IGNORECASE)
_ADDRESS_REACH = 2048
_IPV4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")

Look = Callable[[str], bool]
"""Whether a decoded text holds a value."""


class Encoded:
    """The layer.

    Args:
        look: asked about decoded text that holds no words.
    """

    names: frozenset[str] = frozenset()
    decoded = True
    version = f"encoded-{LONGEST_CHECKSUM}-{LONGEST_HEX}"

    def __init__(self, look: Look) -> None:
        self._look = look

    def find(self, text: str) -> list[Span]:
        """Merged spans, of type ENCODED, and ID for what may be masked."""
        spans: list[Span] = []
        spans.extend(self._base64(text))
        spans.extend(self._lines(text))
        spans.extend(self._hexadecimal(text))
        spans.extend(self._base32(text))
        if "%" in text:
            spans.extend(self._percent(text))
        if "=" in text:
            spans.extend(self._quoted(text))
        if ":" in text:
            spans.extend(
                (*hit.span(), ENCODED) for hit in _DATA_ADDRESS.finditer(text) if _is_data(hit.group())
            )
        if "<~" in text:
            spans.extend((*hit.span(), ENCODED) for hit in _ASCII85.finditer(text))
        if "begin" in text:
            spans.extend((*hit.span(), ENCODED) for hit in _UUENCODED.finditer(text))
        spans.extend((*hit.span(), ENCODED) for hit in _CONTROLS.finditer(text))
        return merge(spans)

    def _hides(self, data: bytes, *, strict: bool = False, deeper: int = 2) -> bool:
        if decoding.packed(data):
            return len(data) >= _SHORTEST_PACKED
        for piece in decoding.readings(data):
            said = decoding.as_text(piece, strict=strict)
            if said is not None and (decoding.says_something(said) or self._look(said)):
                return True
        if len(data) <= _LONGEST_VALUE and _is_value(data):
            return True
        # Encoded twice.
        if (
            deeper
            and data.isascii()
            and _RUN.fullmatch(again := data.decode())
            and not decoding.natural(again)
        ):
            further = decoding.from_base64(again)
            return further is not None and self._hides(further, strict=strict, deeper=deeper - 1)
        return False

    def _base64(self, text: str) -> Iterator[Span]:
        for run in _RUN.finditer(text):
            written = run.group()
            if decoding.natural(written) or _NO_LETTER.match(written):
                continue
            start, end = run.span()
            if self._base64_hides(written[:_MOST_DECODED]):
                yield start, end, ENCODED
            elif len(written) > LONGEST_CHECKSUM:
                if decoding.random_looking(written[:_MOST_DECODED], _LONG_RANDOM):
                    yield start, end, ENCODED
            elif len(written) >= _SHORTEST_ID:
                rate = _RANDOM if len(written) >= 40 else _SHORT_RANDOM
                if decoding.random_looking(written, rate):
                    yield start, end, "ID"

    def _base64_hides(self, written: str) -> bool:
        if self._base64_says(written):
            return True
        # Something may be glued before it: a label, a part of a path, letters.
        bare = written.rstrip("=")
        for border in islice(_BORDERS.finditer(bare), _MOST_BORDERS):
            rest = bare[border.end() :]
            if (
                len(rest) >= _SHORTEST_RUN
                and not decoding.natural(rest)
                and self._base64_says(rest, strict=True)
            ):
                return True
        return len(written) > _SHORTEST_TEXT and any(
            self._base64_says(written[shift:], strict=True) for shift in (1, 2, 3)
        )

    def _base64_says(self, written: str, *, strict: bool = False) -> bool:
        data = decoding.from_base64(written)
        return data is not None and self._hides(data, strict=strict)

    def _lines(self, text: str) -> Iterator[Span]:
        """Base64 broken over lines, which then hold nothing else."""
        if "\n" not in text:
            return
        for run in _LINES.finditer(text):
            pieces = run.group().replace(">", " ").split()
            whole = "".join(pieces)
            if len(whole) < _SHORTEST_TEXT or all(map(decoding.natural, pieces)):
                continue
            data = decoding.from_base64(whole[:_MOST_DECODED])
            if (data and self._hides(data)) or (
                len(whole) > LONGEST_CHECKSUM and decoding.random_looking(whole[:_MOST_DECODED], _RANDOM)
            ):
                yield *run.span(), ENCODED

    def _hexadecimal(self, text: str) -> Iterator[Span]:
        for run in _HEX.finditer(text):
            written = run["run"] or run["long"]
            start, end = run.span()
            if self._hides(decoding.from_hex(written[:_MOST_DECODED])):
                yield start, end, ENCODED
            elif written.isdigit() or len(set(written.lower())) < _FEW_KINDS:
                continue
            elif len(written) > LONGEST_HEX:
                yield start, end, ENCODED
            elif len(written) >= _SHORTEST_HEX_ID and not written.isalpha():
                yield start, end, "ID"
        for rule in (_HEX_PAIRS, _HEX_LINES):
            for run in rule.finditer(text):
                written = _NOT_HEX.sub("", run.group())
                long = (
                    len(written) > LONGEST_HEX and not written.isdigit() and len(set(written)) >= _FEW_KINDS
                )
                if long or self._hides(decoding.from_hex(written[:_MOST_DECODED])):
                    yield *run.span(), ENCODED

    def _base32(self, text: str) -> Iterator[Span]:
        for run in _BASE32.finditer(text):
            written = run.group()
            digits = sum(map(str.isdigit, written))
            if not digits and "=" not in written:
                continue
            data = decoding.from_base32(written[:_MOST_DECODED])
            hides = data is not None and self._hides(data)
            # One in five signs of random base32 is a digit.
            if hides or (len(written) > LONGEST_CHECKSUM and digits * 12 > len(written)):
                yield *run.span(), ENCODED

    def _percent(self, text: str) -> Iterator[Span]:
        """Outside addresses, which are masked whole, nobody writes letters with percent signs."""
        for run in _PERCENT_RUN.finditer(text):
            data = urllib.parse.unquote_to_bytes(run.group()[: 3 * _MOST_DECODED])
            if (self._hides(data) or _letters(data)) and not _in_address(text, run.start()):
                yield *run.span(), ENCODED

    def _quoted(self, text: str) -> Iterator[Span]:
        for run in _QUOTED.finditer(text):
            data = quopri.decodestring(run.group()[: 3 * _MOST_DECODED].encode())
            if self._hides(data) or _letters(data):
                yield *run.span(), ENCODED
        yield from ((*hit.span(), ENCODED) for hit in _MAIL_WORD.finditer(text))


def _letters(data: bytes) -> bool:
    """Whether three or more escapes stand for a Hangul syllable or only for letters."""
    try:
        said = data.decode()
    except UnicodeDecodeError:
        return False
    return bool(_SYLLABLE.search(said)) or (said.isascii() and said.isalpha())


_SYLLABLE = re.compile(r"[가-힣]")


def _is_data(address: str) -> bool:
    head, _, rest = address.partition(",")
    return ";" in head or "/" in head or "%" in rest


def _in_address(text: str, place: int) -> bool:
    first = max(0, place - _ADDRESS_REACH)
    word = text[first:place].split()[-1:] if not text[place - 1 : place].isspace() else []
    return bool(word and _ADDRESS_BEGINS.search(word[0]))


_OWN = [regex.compile(rule, regex.IGNORECASE | regex.ASCII) for _, _, rule in PATTERNS]


def holds_value(text: str) -> bool:
    """Whether our own rules find anything: digits in a row, an `@`, a form we know."""
    return bool(
        leftovers(text) or joined(text) or _IPV4.search(text) or any(rule.search(text) for rule in _OWN)
    )


def _is_value(data: bytes) -> bool:
    """Whether bytes too few to be told from chance otherwise are one value and nothing else."""
    try:
        text = data.decode().strip()
    except UnicodeDecodeError:
        return False
    return _NUMBER.fullmatch(text) is not None or any(rule.fullmatch(text) for rule in _OWN)


_NUMBER = re.compile(r"[0-9](?:[- .]?[0-9]){6,}+")


def build(options: LayerOptions) -> Encoded:
    """Never missing."""
    return Encoded(holds_value)
