"""Ways to write a value so that a person still reads it and a careless detector does not.

A disguise of a value changes the value alone; a disguise of the text wraps the whole sentence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from random import Random
from urllib.parse import quote

DASHES = "‐‑‒–—―−﹘－"
INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff\u00ad"
SPACES = " \u00a0\u2009\u3000"
_BETWEEN = re.compile(r"[-. )(]+")
_PASSPORT = re.compile(r"([A-Z])(\d{3})([A-Z]\d{4}|\d{5})")
_PLATE = re.compile(r"(\d{2,3})([가-힣]) ?(\d{4})")
_NAME = re.compile(r"[가-힣]{2,4}")


def plain(rng: Random, value: str) -> str:
    return value


def full_width(rng: Random, value: str) -> str:
    return "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in value)


def zero_width(rng: Random, value: str) -> str:
    return rng.choice(INVISIBLE).join(value)


def _groups(rng: Random, value: str) -> list[str]:
    """The pieces in which people write or dictate a value; one piece for what has none."""
    if "@" in value or ":" in value:
        return [value]
    if passport := _PASSPORT.fullmatch(value):
        letter, first, rest = passport.groups()
        return rng.choice(([letter, first + rest], [letter + first, rest], [letter, first, rest]))
    if plate := _PLATE.fullmatch(value):
        return list(plate.groups())
    if _NAME.fullmatch(value):
        return [value[: len(value) // 2], value[len(value) // 2 :]]
    return [group for group in _BETWEEN.split(value) if group]


def dashes(rng: Random, value: str) -> str:
    sign = rng.choice(DASHES)
    return sign.join(_groups(rng, value.replace("-", sign)))


def spaces(rng: Random, value: str) -> str:
    sign = rng.choice(SPACES)
    return value.replace("@", f"{sign}@{sign}") if "@" in value else sign.join(_groups(rng, value))


def together(rng: Random, value: str) -> str:
    return "".join(_groups(rng, value))


def percent(rng: Random, value: str) -> str:
    if rng.random() < 0.5:
        return "".join(f"%{byte:02X}" for byte in value.encode())
    return quote(value, safe="")


def newline(rng: Random, value: str) -> str:
    """At the border of two groups, or anywhere but inside a percent sign and its digits."""
    borders = [hit.end() for hit in _BETWEEN.finditer(value) if 0 < hit.end() < len(value)]
    anywhere = [at for at in range(1, len(value)) if not set("%％") & set(value[max(0, at - 2) : at])]
    at = rng.choice(borders if borders and rng.random() < 0.5 else anywhere)
    return f"{value[:at]}{rng.choice((chr(10), chr(13) + chr(10)))}{value[at:]}"


def json_text(rng: Random, text: str) -> str:
    """The sentence inside a JSON document, once or twice."""
    ascii_only = rng.random() < 0.7
    made = json.dumps({"note": text, "n": 1}, ensure_ascii=ascii_only)
    return json.dumps({"inner": made}, ensure_ascii=ascii_only) if rng.random() < 0.3 else made


Change = Callable[[Random, str], str]
OF_VALUES: dict[str, Change] = {
    "plain": plain,
    "full-width": full_width,
    "zero-width": zero_width,
    "dashes": dashes,
    "spaces": spaces,
    "together": together,
    "percent": percent,
    "newline": newline,
}
OF_TEXTS: dict[str, Change] = {"JSON in JSON": json_text}


@dataclass(frozen=True)
class Disguise:
    """One change, or two of them one after the other."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return " + ".join(self.names)

    def write(self, rng: Random, before: str, value: str, after: str) -> str:
        """The sentence with the value disguised in it."""
        for name in self.names:
            value = OF_VALUES[name](rng, value) if name in OF_VALUES else value
        text = f"{before}{value}{after}"
        for name in self.names:
            text = OF_TEXTS[name](rng, text) if name in OF_TEXTS else text
        return text


SINGLE = tuple(Disguise((name,)) for name in (*OF_VALUES, *OF_TEXTS))
DOUBLE = tuple(
    Disguise(pair)
    for pair in permutations((*OF_VALUES, *OF_TEXTS), 2)
    if "plain" not in pair and pair[0] not in OF_TEXTS
)
DISGUISES = (*SINGLE, *DOUBLE)
