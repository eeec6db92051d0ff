"""Cases of one planted value each: kind, disguise and site; and what a recorder saw of the value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tests.support.disguises import DISGUISES, SINGLE, Disguise
from tests.support.personal_data import KINDS, NAME, Planted, planted
from tests.support.request_sites import SITES, Request, Site
from tests.support.wire_reading import found, pieces, squeezed
from weighbridge.masking.entities import TYPES

_TYPED = re.compile(rb"\[(?:" + "|".join(TYPES).encode() + rb")_([A-Z2-7]{8})\]")


@dataclass(frozen=True)
class Case:
    """One request with one value in it."""

    planted: Planted
    disguise: Disguise
    site: Site
    text: str
    request: Request

    def __str__(self) -> str:
        return f"{self.planted.kind} | {self.site} | {self.disguise} | {self.text!r}"

    def seen_in(self, data: bytes) -> set[str]:
        """The pieces of the value that `data` holds, decoded in every way. A placeholder counts by its token alone: its
        type is a word of ours, and `[EMAIL_HO…` is not the `mailho` of somebody's `mailhost`."""
        return found(_TYPED.sub(rb"[\1]", data), self.planted.value)


def case(rng: Random, kind: str, disguise: Disguise, site: Site, names: Sequence[str] = ()) -> Case | None:
    """A request with a value of `kind` in it; None where such a value cannot stand.

    Args:
        names: those to choose from when `kind` is a name; all names by default.
    """
    while True:
        made = planted(rng, kind, rng.choice(names) if names and kind == NAME else None)
        text = disguise.write(rng, made.before, made.value, made.after)
        request = site.build(text, made.value)
        if request is None:
            return None
        if not _told_without(made, site):
            return Case(made, disguise, site, text, request)


def _told_without(made: Planted, site: Site) -> bool:
    """Whether the request without the value would hold a piece of it all the same, so that the case proves nothing."""
    without = site.build(f"{made.before}[NUM_AAAAAAAA]{made.after}", "0")
    around = squeezed(json.dumps(without.body, ensure_ascii=False)) if without is not None else ""
    around += squeezed(f"{made.before} {made.after}")
    return any(piece in around for piece in pieces(made.value))


def drawn(
    rng: Random, count: int, names: Sequence[str] = (), kinds: Sequence[str] = tuple(KINDS)
) -> Iterator[Case]:
    """`count` cases, every kind, disguise and site about as often; half of them with one disguise alone."""
    sites, disguises = list(SITES), list(DISGUISES)
    made = 0
    while made < count:
        rng.shuffle(sites)
        rng.shuffle(disguises)
        for number, site in enumerate(sites):
            if made == count:
                return
            disguise = rng.choice(SINGLE) if number % 2 else disguises[number % len(disguises)]
            one = case(rng, kinds[made % len(kinds)], disguise, site, names)
            if one is not None:
                made += 1
                yield one
