"""Values with a form: presidio's recognisers and our own.

Imported only inside the worker process; loading it costs a second and a hundred megabytes. Needs no model, no network.
"""

from __future__ import annotations

from bisect import bisect_right
from importlib.metadata import version

import regex
import tldextract
from presidio_analyzer import AnalyzerEngine, EntityRecognizer, PatternRecognizer, RecognizerRegistry
from presidio_analyzer.nlp_engine import NoOpNlpEngine
from presidio_analyzer.predefined_recognizers import (
    CreditCardRecognizer,
    CryptoRecognizer,
    DateRecognizer,
    IbanRecognizer,
    IpRecognizer,
    KrBrnRecognizer,
    KrDriverLicenseRecognizer,
    KrFrnRecognizer,
    KrPassportRecognizer,
    KrRrnRecognizer,
    MacAddressRecognizer,
    MedicalLicenseRecognizer,
    NhsRecognizer,
    PhoneRecognizer,
    UsItinRecognizer,
    UsSsnRecognizer,
    UuidRecognizer,
)

from weighbridge.masking.backstop import leftovers
from weighbridge.masking.entities import PLACEHOLDER, PLACEHOLDER_SHAPE, Span, gap_places, merge, widen
from weighbridge.masking.layers.base import LayerOptions
from weighbridge.masking.layers.ibans import ibans
from weighbridge.masking.layers.joined import joined
from weighbridge.masking.layers.patterns import PATTERNS
from weighbridge.masking.suffixes import offline

LANGUAGE = "und"
"""One language code for every recogniser: text mixes languages, and so must the rules."""

FLAGS = regex.DOTALL | regex.MULTILINE | regex.IGNORECASE | regex.ASCII

_PLACEHOLDER_TYPE = {
    "CREDIT_CARD": "CARD",
    "CRYPTO": "WALLET",
    "DATE_TIME": "DATE",
    "IBAN_CODE": "IBAN",
    "IP_ADDRESS": "IP",
    "KR_BRN": "BRN",
    "KR_DRIVER_LICENSE": "LICENSE",
    "KR_FRN": "FRN",
    "KR_PASSPORT": "PASSPORT",
    "KR_RRN": "RRN",
    "MAC_ADDRESS": "MAC",
    "MEDICAL_LICENSE": "LICENSE",
    "UK_NHS": "NHS",
    "US_ITIN": "ITIN",
    "US_SSN": "SSN",
    "UUID": "UUID",
}

# Presidio scores these by how often their shape is an accident, and counts on context words that the no-op engine does
# not read. A false hit costs us one placeholder, restored on the way back; a miss is a leak. So the shape is enough:
# grouped digits (driver licence 2-2-6-2, business number 3-2-5, ITIN, SSN 3-2-4) and a letter with digits (passport).
_SHAPE_IS_ENOUGH = {
    "KR_PASSPORT": 0.04,
    "KR_DRIVER_LICENSE": 0.04,
    "KR_BRN": 0.04,
    "US_ITIN": 0.04,
    "US_SSN": 0.04,
}

# A text with none of these holds nothing that any recogniser here could find: digits, the signs of addresses, a long
# word (a wallet address could lack digits), or hexadecimal pairs.
_WORTH_A_LOOK = regex.compile(
    r"[0-9@:]|www\.|골뱅이|at ?[\])}>]|[A-Za-z]{24}|[A-Fa-f]{2}-[A-Fa-f]{2}|[A-Fa-f]{4}\.[A-Fa-f]{4}",
    regex.IGNORECASE,
)

# Telephone matching tries nine countries' rules on each candidate and is the dearest step by far. It is shown only the
# stretches of digits that nothing else has claimed, and so many of them; the second pass masks the rest as NUM.
_DIGIT_STRETCH = regex.compile(r"[+(]?\d(?:[\s().\-/+]{0,3}\d){5,19}", FLAGS)
_MARGIN = 12
_MOST_STRETCHES = 8
_FEW_STRETCHES = 2


class Structured:
    """The layer."""

    names: frozenset[str] = frozenset()
    decoded = True

    def __init__(self, score_threshold: float) -> None:
        # Any public-suffix look-up would fetch lists from the network on first use.
        tldextract.extract = offline()
        self._threshold = score_threshold
        registry = RecognizerRegistry(global_regex_flags=FLAGS, supported_languages=[LANGUAGE])
        for recognizer in _recognizers():
            # Registering does not pass the registry's flags on.
            if isinstance(recognizer, PatternRecognizer):
                recognizer.global_regex_flags = FLAGS
            registry.add_recognizer(recognizer)
        # Presidio's own leniency (a number must be valid in its country): a laxer one fires on dates and amounts.
        self._phone = PhoneRecognizer(
            supported_language=LANGUAGE, supported_regions=("KR", *PhoneRecognizer.DEFAULT_SUPPORTED_REGIONS)
        )
        nothing = NoOpNlpEngine([{"lang_code": LANGUAGE, "model_name": "none"}])
        nothing.load()
        self._engine = AnalyzerEngine(registry=registry, nlp_engine=nothing, supported_languages=[LANGUAGE])
        self.version = f"presidio-{version('presidio-analyzer')}+{score_threshold}"

    def find(self, text: str) -> list[Span]:
        """Merged spans."""
        spans: list[Span] = [(*hit.span(), PLACEHOLDER_SHAPE) for hit in _SHAPED.finditer(text)]
        if not _WORTH_A_LOOK.search(text):
            return merge(spans)
        for hit in self._engine.analyze(text, language=LANGUAGE, score_threshold=0.0):
            if hit.score >= min(self._threshold, _SHAPE_IS_ENOUGH.get(hit.entity_type, 1.0)):
                entity = _PLACEHOLDER_TYPE.get(hit.entity_type, hit.entity_type)
                spans.append((hit.start, hit.end, entity))
        # Run by ourselves: presidio's result objects cost a hostile text seconds.
        spans.extend(
            (*hit.span(), entity) for entity, rule in _OWN for hit in rule.finditer(text) if hit.group()
        )
        spans.extend(joined(text))
        spans.extend(ibans(text))
        spans.extend(self._phones(text, merge(spans)))
        found = merge(widen(text, span) for span in merge(spans))
        rest: list[Span] = []
        for first, last in gap_places(text, found):
            rest.extend(
                (first + start, first + end, entity) for start, end, entity in leftovers(text[first:last])
            )
        return merge((*found, *rest))

    def _phones(self, text: str, claimed: list[Span]) -> list[Span]:
        starts = [start for start, _, _ in claimed]
        unclaimed: list[tuple[int, int]] = []
        for stretch in _DIGIT_STRETCH.finditer(text):
            before = bisect_right(starts, stretch.start()) - 1
            if before < 0 or claimed[before][1] < stretch.end():
                unclaimed.append(stretch.span())
                if len(unclaimed) > _MOST_STRETCHES:
                    # A table, or an attack.
                    del unclaimed[_FEW_STRETCHES:]
                    break
        found: list[Span] = []
        for start, end in unclaimed:
            first = max(0, start - _MARGIN)
            for hit in self._phone.analyze(text[first : end + _MARGIN], [], None):
                found.append((first + hit.start, first + hit.end, "PHONE"))
        return found


_SHAPED = regex.compile(PLACEHOLDER.pattern, regex.IGNORECASE)


_OWN = [(entity, regex.compile(expression, FLAGS)) for entity, _, expression in PATTERNS]


def _recognizers() -> list[EntityRecognizer]:
    return [
        *(
            kind(supported_language=LANGUAGE)
            for kind in (
                CreditCardRecognizer,
                CryptoRecognizer,
                DateRecognizer,
                IbanRecognizer,
                IpRecognizer,
                KrBrnRecognizer,
                KrDriverLicenseRecognizer,
                KrFrnRecognizer,
                KrPassportRecognizer,
                KrRrnRecognizer,
                MacAddressRecognizer,
                MedicalLicenseRecognizer,
                NhsRecognizer,
                UsItinRecognizer,
                UsSsnRecognizer,
                UuidRecognizer,
            )
        ),
    ]


def build(options: LayerOptions) -> Structured:
    """Never missing."""
    return Structured(options.score_threshold)
