"""Reading encoded runs: what bytes say as text, and whether a run is too random to be a word."""

from __future__ import annotations

import base64
import binascii
import re

_HANGUL = re.compile(r"[가-힣]")
_WORDY = re.compile(r"[A-Za-z]{2}")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e\s\u00a1-\uffef]|[\ufffd\ue000-\uf8ff]")
_WESTERN = re.compile(r"[A-Za-z0-9\s]")
_PLAIN_SIGN = re.compile(r"[A-Za-z0-9 .,:;@\-_/()+'\"\n\r\t]")
_ODD_WORD = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]|[A-Za-z][0-9][A-Za-z]|[0-9][A-Za-z][0-9]|[^A-Za-z0-9\s]{3}")
_MAGIC = (
    b"\x1f\x8b\x08",
    b"\x89PNG",
    b"\xff\xd8\xff",
    b"GIF8",
    b"%PDF",
    b"PK\x03\x04",
    b"BZh",
    b"\xfd7zXZ",
    b"\x28\xb5\x2f\xfd",
    b"7z\xbc\xaf",
    b"Rar!",
    b"\x7fELF",
    b"RIFF",
    b"\x30\x82",
    b"\xd0\xcf\x11\xe0",
    b"OggS",
    b"fLaC",
    b"ID3",
    b"SQLite",
    b"Salted__",
)
_NATURAL = re.compile(
    r"[/_+-]{0,2}(?:(?>[A-Z]?[a-z]{3,}|[A-Z]{2,}(?![a-z])|[A-Za-z](?=[/_+-]|\Z)|(?:is|in|to|on|of|by|my|id|up)(?![a-z])"
    r"|[0-9]{1,4}(?=[/_+-]|\Z))[/_+-]{0,2})*+\Z"
)
_TRANSLATE = {
    **{ord(char): "u" for char in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"},
    **{ord(char): "l" for char in "abcdefghijklmnopqrstuvwxyz"},
    **{ord(char): "d" for char in "0123456789"},
}
_BEGINNING = 18
"""Bytes: six Hangul syllables, or three words."""
_CHANGE = re.compile(r"(?=ul|ud|lu|ld|du|dl)")


def as_text(data: bytes, *, strict: bool = False) -> str | None:
    """The printable text that `data` is, if it is one: UTF-8, UTF-16 or CP949, with Hangul or of 8 characters.

    Args:
        strict: for one of many guesses, which must not hit by accident.
    """
    if len(data) < 6:
        return None
    for codec in _codecs(data, strict):
        try:
            text = data.decode(codec)
        except (UnicodeDecodeError, ValueError):
            continue
        if _UNPRINTABLE.search(text):
            continue
        if len(_HANGUL.findall(text)) >= 2:
            return text
        if text.isascii():
            if len(text) >= (10 if strict else 8) and _reads_well(text):
                return text
        elif len(_WESTERN.findall(text)) >= 0.75 * len(text) and len(text) >= 12:
            # Letters of other alphabets beside each other are an accident of random bytes.
            return text
    return None


def readings(data: bytes) -> list[bytes]:
    """`data`, and its beginning alone when it is long: something may be glued behind it."""
    if len(data) <= 2 * _BEGINNING:
        return [data]
    end = _BEGINNING
    while data[end] & 0xC0 == 0x80 and end > _BEGINNING - 3:
        end -= 1
    return [data, data[:end]]


def _reads_well(text: str) -> bool:
    """Whether ASCII text looks written. Random bytes are printable by accident, but then hold odd signs and words."""
    if len(_PLAIN_SIGN.findall(text)) < (0.85 if len(text) > 24 else 1) * len(text):
        return False
    return len(text) > 24 or not _ODD_WORD.search(text)


def _codecs(data: bytes, strict: bool) -> list[str]:
    if data.isascii():
        nulls = data.count(0)
        if nulls * 2 >= len(data) - 2 and nulls > 2:
            return ["utf-16-le" if data[1] == 0 else "utf-16-be"]
        return [] if nulls else ["ascii"]
    codecs = ["utf-8"]
    if not strict:
        if _is_cp949(data):
            codecs.append("cp949")
        if len(data) % 2 == 0 and _is_utf16_hangul(data, 1):
            codecs.append("utf-16-le")
        if len(data) % 2 == 0 and _is_utf16_hangul(data, 0):
            codecs.append("utf-16-be")
    return codecs


def _is_cp949(data: bytes) -> bool:
    """Whether every high byte is part of a common Hangul syllable."""
    at = pairs = 0
    while at < len(data):
        if data[at] < 0x80:
            at += 1
            continue
        if not (0xB0 <= data[at] <= 0xC8 and at + 1 < len(data) and data[at + 1] >= 0xA1):
            return False
        pairs += 1
        at += 2
    return pairs >= 3


def _is_utf16_hangul(data: bytes, high: int) -> bool:
    tops = data[high::2]
    return all(top == 0 or 0xAC <= top <= 0xD7 for top in tops) and sum(top >= 0xAC for top in tops) >= 6


def packed(data: bytes) -> bool:
    """Whether `data` begins as a picture, archive, document or key does."""
    return data.startswith(_MAGIC)


def from_base64(run: str) -> bytes | None:
    """Base64 or its form for addresses, padded or not; a last odd character is left out."""
    run = run.rstrip("=").translate(_URL_SAFE)
    if len(run) % 4 == 1:
        run = run[:-1]
    try:
        return base64.b64decode(run + "=" * (-len(run) % 4))
    except (binascii.Error, ValueError):
        return None


_URL_SAFE = str.maketrans("-_", "+/")


def from_base32(run: str) -> bytes | None:
    """Base32 in either case; what does not fill a byte is left out."""
    run = run.rstrip("=").upper()
    run = run[: len(run) // 8 * 8 + {0: 0, 1: 0, 2: 2, 3: 2, 4: 4, 5: 5, 6: 5, 7: 7}[len(run) % 8]]
    try:
        return base64.b32decode(run + "=" * (-len(run) % 8))
    except (binascii.Error, ValueError):
        return None


def from_hex(run: str) -> bytes:
    """Pairs of hexadecimal digits; an odd last one is left out."""
    return bytes.fromhex(run[: len(run) // 2 * 2])


def random_looking(run: str, rate: float) -> bool:
    """Whether capitals, small letters and digits are all there and take turns at `rate` or more.

    In random base64 two neighbours are of different classes in 58 of 100 places; in names of things and paths in
    fewer than 30.
    """
    kinds = run.translate(_TRANSLATE)
    if not ("u" in kinds and "l" in kinds and "d" in kinds):
        return False
    return len(_CHANGE.findall(kinds)) >= rate * (len(kinds) - 1)


def natural(run: str) -> bool:
    """Whether a run is made of words and numbers, as names of things and paths are."""
    return _NATURAL.match(run) is not None


def says_something(text: str) -> bool:
    """Whether a decoded text has letters enough for a name."""
    return bool(_WORDY.search(text) or _HANGUL.search(text))
