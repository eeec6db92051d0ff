"""What a curious reader gets out of recorded bytes: every decoding, and no separators."""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

PIECE = 6
"""Characters in a row of a value that must not be seen."""

_ROUNDS = 4
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{12,}={0,2}")
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2}){6,}")
_ESCAPES = re.compile(r"\\u([0-9a-fA-F]{4})")


def squeezed(text: str) -> str:
    """Letters and digits alone, in one case and one width."""
    return "".join(char for char in unicodedata.normalize("NFKC", text).casefold() if char.isalnum())


def pieces(value: str) -> set[str]:
    """Every run of `PIECE` letters and digits of a value; the whole of a shorter one."""
    core = squeezed(value)
    if len(core) <= PIECE:
        return {core}
    return {core[at : at + PIECE] for at in range(len(core) - PIECE + 1)}


def readings(data: bytes) -> list[str]:
    """The bytes as text, and all that can be decoded out of it, step by step."""
    text = data.decode("utf-8", errors="replace")
    seen: dict[str, None] = {text: None}
    fresh = [text]
    for _ in range(_ROUNDS):
        further = {reading for known in fresh for reading in _decoded(known)} - seen.keys()
        if not further:
            break
        seen.update(dict.fromkeys(sorted(further)))
        fresh = sorted(further)
    return list(seen)


def found(data: bytes, value: str) -> set[str]:
    """The pieces of `value` that stand in one of the readings of `data`."""
    wanted = pieces(value)
    return {piece for reading in map(squeezed, readings(data)) for piece in wanted if piece in reading}


def _decoded(text: str) -> Iterator[str]:
    yield _usual(text)
    if "%" in text:
        yield "".join(text.split())
        yield unquote(text, errors="replace")
    if "&" in text:
        yield html.unescape(text)
    if "\\" in text:
        yield (
            _ESCAPES.sub(lambda hit: chr(int(hit[1], 16)), text)
            .encode("utf-16", "surrogatepass")
            .decode("utf-16", "replace")
        )
        yield re.sub(r"\\[nrtbf]", " ", text).replace("\\", "")
    yield from _strings(text)
    for run in _BASE64.findall(text):
        yield from _as_text(_unbase64(run))
    for run in _HEX.findall(text):
        yield from _as_text(bytes.fromhex(run))


def _usual(text: str) -> str:
    """The usual width of every character, and none of those that cannot be seen."""
    return "".join(char for char in unicodedata.normalize("NFKC", text) if unicodedata.category(char) != "Cf")


def _strings(text: str) -> Iterator[str]:
    """All strings of the JSON document in a text, one after the other; and what is said in it without the rest, for a
    value may be dealt out over parts and messages."""
    decoder = json.JSONDecoder(strict=False)
    at = text.find("{")
    if at < 0:
        return
    try:
        document, _ = decoder.raw_decode(text, at)
    except (ValueError, RecursionError):
        return
    yield "\x00".join(_walk(document))
    yield "".join(_said(document))


def _walk(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from _walk(item)
    elif isinstance(value, list):
        for item in value:
            yield from _walk(item)
    elif value is not None:
        yield str(value)


def _said(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, str) and key in ("content", "text"):
                yield item
            else:
                yield from _said(item)
    elif isinstance(value, list):
        for item in value:
            yield from _said(item)


def _unbase64(run: str) -> bytes:
    run = run.rstrip("=").translate(str.maketrans("-_", "+/"))
    try:
        return base64.b64decode(run + "=" * (-len(run) % 4))
    except (ValueError, binascii.Error):
        return b""


def _as_text(data: bytes) -> Iterator[str]:
    """Bytes that are text to nine tenths."""
    text = data.decode("utf-8", errors="ignore")
    if text and sum(map(str.isprintable, text)) * 10 >= len(data) * 9:
        yield text
