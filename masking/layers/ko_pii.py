"""Korean values by the rules of the package ko-pii: labels, check sums and dictionaries."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from weighbridge.masking.entities import Span
from weighbridge.masking.layers.base import LayerMissing, LayerOptions
from weighbridge.masking.layers.windows import by_windows

_Rule = tuple[Callable[[str], Iterable[Any]], str]
_DIGIT = re.compile(r"\d")


class KoPii:
    """The layer."""

    names: frozenset[str] = frozenset()
    decoded = False

    def __init__(self) -> None:
        try:
            from ko_pii.domain import civil_petition, hr
            from ko_pii.patterns import (
                account,
                birth,
                business_reg,
                card,
                corp_reg,
                court_case,
                driver_license,
                fax,
                frn,
                medical_insurance,
                passport,
                phone,
                pnu,
                postal_code,
                prescription,
                rrn,
                vehicle,
            )

            self.version = f"ko-pii-{version('ko-pii')}"
        except (ImportError, PackageNotFoundError):
            raise LayerMissing("the package ko-pii is not installed") from None
        # Mail, IP and web addresses are left to the layer of structured values, which finds them at a tenth of the
        # cost; posts, schools, subjects, nationalities, document and drug numbers say nothing about one person.
        # Its names are left out as well: on news it finds three in ten, is right about every other one, and takes as
        # long as all its other rules together. So are its addresses, all of which the other layers find.
        self._rules: tuple[_Rule, ...] = (
            (rrn.detect, "RRN"),
            (frn.detect, "FRN"),
            (business_reg.detect, "BRN"),
            (corp_reg.detect, "CRN"),
            (driver_license.detect, "LICENSE"),
            (passport.detect, "PASSPORT"),
            (card.detect, "CARD"),
            (medical_insurance.detect, "HEALTH"),
            (prescription.detect, "ID"),
            (pnu.detect, "ID"),
            (fax.detect, "PHONE"),
            (phone.detect, "PHONE"),
            (postal_code.detect, "ADDRESS"),
            (vehicle.detect, "PLATE"),
            (account.detect, "ACCOUNT"),
            (court_case.detect, "ID"),
            (birth.detect, "DATE"),
            (civil_petition.detect, "ID"),
            (hr.detect, "ID"),
        )

    def find(self, text: str) -> list[Span]:
        """Spans, overlapping or not; none without a digit."""
        return by_windows(text, self._look) if _DIGIT.search(text) else []

    def _look(self, text: str) -> list[Span]:
        return [(hit.start, hit.end, entity) for detect, entity in self._rules for hit in detect(text)]


def build(options: LayerOptions) -> KoPii:
    """Missing without the package."""
    del options
    return KoPii()
