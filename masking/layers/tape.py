"""Korean values by the rules of the package maskingtape, which is best at addresses and at names beside labels."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version

from weighbridge.masking.entities import Span
from weighbridge.masking.layers.base import LayerMissing, LayerOptions
from weighbridge.masking.layers.windows import by_windows

_HANGUL = re.compile("[가-힣]")
_DIGIT = re.compile(r"\d")


class Tape:
    """The layer."""

    # Names beside labels and titles alone: one in ten of those in news.
    names: frozenset[str] = frozenset()
    decoded = False

    def __init__(self) -> None:
        try:
            from maskingtape import detectors

            self.version = f"maskingtape-{version('maskingtape')}"
        except (ImportError, PackageNotFoundError):
            raise LayerMissing("the package maskingtape is not installed") from None
        # Not run as its pipeline: that would fold the text again. Mail and resident numbers have their own layer.
        self._words = ((detectors.NameDetector(), "PERSON"), (detectors.AddressDetector(), "ADDRESS"))
        self._digits = (
            (detectors.PassportDetector(), "PASSPORT"),
            (detectors.DriverLicenseDetector(), "LICENSE"),
            (detectors.PhoneDetector(), "PHONE"),
            (detectors.CreditCardDetector(), "CARD"),
            (detectors.AccountDetector(), "ACCOUNT"),
            (detectors.BusinessRegistrationDetector(), "BRN"),
            (detectors.BirthDateDetector(), "DATE"),
        )

    def find(self, text: str) -> list[Span]:
        """Spans, overlapping or not; none without Hangul."""
        return by_windows(text, self._look) if _HANGUL.search(text) else []

    def _look(self, text: str) -> list[Span]:
        rules = (*self._words, *self._digits) if _DIGIT.search(text) else self._words
        return [(hit.start, hit.end, entity) for rule, entity in rules for hit in rule.detect(text)]


def build(options: LayerOptions) -> Tape:
    """Missing without the package."""
    del options
    return Tape()
