"""Scores of detection on labelled texts: what is covered, what is left, what it costs."""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weighbridge.masking.entities import REFUSED, Span, merge
from weighbridge.masking.masked_text import with_leftovers

Find = Callable[[str], list[Span]]
_ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Labelled:
    """One of the files, and what is asked of it.

    Args:
        file: its name.
        language: `ko` or `en`.
        name: the type of people's names.
        structured: types with a form of their own (digits, signs, a checksum, a fixed order): rules can promise them.
        promised: types of which nothing may be left for a document to be without residue.
        chars: characters of about 500 tokens.
    """

    file: str
    language: str
    name: str
    structured: frozenset[str]
    promised: frozenset[str]
    chars: int


def _types(names: str) -> frozenset[str]:
    return frozenset(names.split())


KLUE = Labelled(
    file="klue_ner_dev.jsonl",
    language="ko",
    name="PS",
    # News: no numbers of people. Dates, times and amounts (DT, TI, QT) are facts of the news and mostly bare years,
    # hours and sums, which nobody promises to mask; organisations are news too.
    structured=frozenset(),
    promised=frozenset({"PS"}),
    chars=900,
)

KO_PII = Labelled(
    file="kopii_generated_eval.jsonl",
    language="ko",
    name="PERSON",
    # Every type that has digits or signs in a known order. Not ADDRESS and PERSON: free words. Not POSTAL_CODE, AGE,
    # HEIGHT, WEIGHT: short bare numbers. Not POSITION, MAJOR, EDUCATION, NATIONALITY: words that name a group.
    structured=_types(
        "PHONE RRN EMAIL ACCOUNT DT_BIRTH BUSINESS_REG VEHICLE URL IP PASSPORT DRIVER_LICENSE CARD FRN CORP_REG"
        " MEDICAL_INSURANCE PRESCRIPTION_ID"
    ),
    # The types that point at one person. An age, a post or a course of study alone does not.
    promised=_types(
        "PERSON ADDRESS PHONE RRN EMAIL ACCOUNT DT_BIRTH BUSINESS_REG VEHICLE URL IP PASSPORT DRIVER_LICENSE CARD FRN"
        " CORP_REG MEDICAL_INSURANCE PRESCRIPTION_ID"
    ),
    chars=900,
)

MASKINGTAPE = Labelled(
    file="maskingtape_synth_v1.jsonl",
    language="ko",
    name="name",
    # All but names and addresses, which are free words.
    structured=_types("rrn phone email driver_license birth_date account card biz_reg passport"),
    promised=_types("name address rrn phone email driver_license birth_date account card biz_reg passport"),
    chars=900,
)

PRESIDIO = Labelled(
    file="presidio_research_synth_v2.jsonl",
    language="en",
    name="PERSON",
    # Digits or signs in a known order. Not ZIP_CODE and AGE: short bare numbers. Not STREET_ADDRESS, GPE, ORGANIZATION,
    # PERSON: free words. Not DATE_TIME: half of them are a bare year or a day of the week.
    structured=_types("CREDIT_CARD IBAN_CODE EMAIL_ADDRESS PHONE_NUMBER US_SSN IP_ADDRESS DOMAIN_NAME"),
    # Not TITLE (Mr., nurse), NRP (American) and DATE_TIME (Tuesday): they name no one.
    promised=_types(
        "CREDIT_CARD IBAN_CODE EMAIL_ADDRESS PHONE_NUMBER US_SSN IP_ADDRESS DOMAIN_NAME PERSON STREET_ADDRESS GPE"
        " ORGANIZATION ZIP_CODE AGE"
    ),
    chars=2_000,
)

FILES = (KLUE, KO_PII, MASKINGTAPE, PRESIDIO)


@dataclass
class Scores:
    """What was measured on one file."""

    documents: int = 0
    refused: int = 0
    values: Counter[str] = field(default_factory=Counter)
    full: Counter[str] = field(default_factory=Counter)
    overlap: Counter[str] = field(default_factory=Counter)
    structured_documents: int = 0
    structured_clean: int = 0
    promised_documents: int = 0
    promised_clean: int = 0
    characters: int = 0
    masked: int = 0
    gold: int = 0
    cpu_ms_document: float = 0.0
    cpu_ms_500_tokens: float = 0.0

    def recall(self, entity: str) -> float | None:
        """Share of the values of a type of which no character is left."""
        return self.full[entity] / self.values[entity] if self.values[entity] else None

    def figures(self, labelled: Labelled) -> dict[str, float]:
        """The figures a baseline holds, as shares of one."""
        found = {
            "refused": self.refused / self.documents,
            "masked": self.masked / self.characters,
            "no_residue": _share(self.promised_clean, self.promised_documents),
        }
        if self.structured_documents:
            found["structured_clean"] = _share(self.structured_clean, self.structured_documents)
        found.update(
            {
                f"recall_full {entity}": _share(self.full[entity], self.values[entity])
                for entity in sorted(self.values)
            }
        )
        return {name: round(value, 4) for name, value in found.items()}


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def read(path: Path) -> list[dict[str, Any]]:
    """The documents of a file."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def spans_as_masked(find: Find, text: str) -> list[Span]:
    """What is taken out of a text: the detectors' spans, and what the second look finds in the gaps between them."""
    return merge(with_leftovers(text, merge(find(text))))


def score(find: Find, labelled: Labelled, documents: Sequence[dict[str, Any]]) -> Scores:
    """Run the detectors over labelled documents.

    A value is full when none of its characters but white space is left, overlapped when one is covered. A refused
    document leaves nothing. CPU time is this process's.
    """
    scores = Scores(documents=len(documents))
    began = time.process_time()
    found = [spans_as_masked(find, document["text"]) for document in documents]
    scores.cpu_ms_document = (time.process_time() - began) * 1e3 / max(1, len(documents))
    for document, spans in zip(documents, found, strict=True):
        _count(scores, labelled, document, spans)
    scores.cpu_ms_500_tokens = _cost(find, labelled.chars, (document["text"] for document in documents))
    return scores


def _count(scores: Scores, labelled: Labelled, document: dict[str, Any], spans: Sequence[Span]) -> None:
    text: str = document["text"]
    covered = bytearray(len(text))
    for start, end, _ in spans:
        covered[start:end] = b"\1" * (end - start)
    refused = any(entity in REFUSED for _, _, entity in spans)
    scores.refused += refused
    scores.characters += len(text)
    scores.masked += sum(covered)
    labels = bytearray(len(text))
    clean = {"structured": True, "promised": True}
    seen = {"structured": False, "promised": False}
    for value in document["entities"]:
        entity = value["type"]
        inked = [place for place in _places(text, value) if not text[place].isspace()]
        for place in inked:
            labels[place] = 1
        full = refused or all(covered[place] for place in inked)
        scores.values[entity] += 1
        scores.full[entity] += full
        scores.overlap[entity] += refused or any(covered[place] for place in inked)
        for kind, types in (("structured", labelled.structured), ("promised", labelled.promised)):
            if entity in types:
                seen[kind] = True
                clean[kind] = clean[kind] and full
    scores.gold += sum(labels)
    scores.structured_documents += seen["structured"]
    scores.structured_clean += seen["structured"] and clean["structured"]
    scores.promised_documents += seen["promised"]
    scores.promised_clean += seen["promised"] and clean["promised"]


def _places(text: str, value: dict[str, Any]) -> list[int]:
    """The characters of a labelled value; without offsets, of every place where it stands: one left is a leak."""
    if "start" in value:
        return list(range(value["start"], value["end"]))
    places: list[int] = []
    start = text.find(value["value"])
    while start >= 0:
        end = start + len(value["value"])
        places.extend(range(start, end))
        start = text.find(value["value"], end)
    return places


def _cost(find: Find, chars: int, texts: Iterable[str], *, most: int = 25) -> float:
    """Median CPU milliseconds for a text of `chars` characters, warm, each text the best of some rounds."""
    blocks: list[str] = []
    block = ""
    for text in texts:
        block = f"{block}\n\n{text}" if block else text
        if len(block) >= chars:
            blocks.append(block[:chars])
            block = ""
        if len(blocks) == most:
            break
    if not blocks:
        return 0.0
    times: list[float] = []
    for one in blocks:
        rounds = []
        for _ in range(_ROUNDS):
            began = time.process_time()
            spans_as_masked(find, one)
            rounds.append(time.process_time() - began)
        times.append(min(rounds) * 1e3)
    return statistics.median(times)


@dataclass(frozen=True, slots=True)
class Goal:
    """A figure that must be reached: `least` or `most`."""

    labelled: Labelled
    figure: str
    least: float | None = None
    most: float | None = None

    def missed(self, value: float) -> bool:
        """Whether `value` is not good enough."""
        return (self.least is not None and value < self.least) or (
            self.most is not None and value > self.most
        )

    def __str__(self) -> str:
        wanted = f">= {self.least:.2f}" if self.least is not None else f"<= {self.most:.2f}"
        return f"{self.labelled.file}: {self.figure} {wanted}"


def goals(*, large_english_model: bool) -> list[Goal]:
    """What is asked of the detectors as shipped, all layers together."""
    return [
        Goal(KO_PII, "structured_clean", least=0.97),
        Goal(MASKINGTAPE, "structured_clean", least=0.97),
        Goal(PRESIDIO, "structured_clean", least=0.97),
        Goal(KLUE, "recall_full PS", least=0.80),
        Goal(PRESIDIO, "recall_full PERSON", least=0.85 if large_english_model else 0.77),
        # Masking everything is no solution.
        Goal(KLUE, "masked", most=0.25),
    ]


_LESS_IS_BETTER = frozenset({"refused", "masked"})
DROP = 0.01
"""One point."""
_ROUNDING = 1e-9


def drops(now: dict[str, dict[str, float]], before: dict[str, dict[str, float]]) -> list[str]:
    """Figures that are worse than in a baseline by more than one point, as sentences. A figure that is gone is one."""
    found: list[str] = []
    for file, figures in before.items():
        for name, was in figures.items():
            value = now.get(file, {}).get(name)
            if value is None:
                found.append(f"{file}: {name} was {was:.3f} and is not measured")
                continue
            worse = value - was if name in _LESS_IS_BETTER else was - value
            if worse > DROP + _ROUNDING:
                found.append(f"{file}: {name} was {was:.3f} and is {value:.3f}")
    return found


def table(labelled: Labelled, scores: Scores) -> str:
    """The scores of one file, for a person."""
    lines = [f"{labelled.file}  ({scores.documents} documents, {labelled.language})"]
    lines.append(f"  {'type':<18}{'values':>7}{'recall_full':>13}{'recall_overlap':>16}")
    for entity, number in scores.values.most_common():
        mark = "*" if entity in labelled.structured else " "
        full, overlap = scores.full[entity] / number, scores.overlap[entity] / number
        lines.append(f"  {entity + mark:<18}{number:>7}{full:>13.3f}{overlap:>16.3f}")
    if scores.structured_documents:
        share = _share(scores.structured_clean, scores.structured_documents)
        lines.append(
            f"  documents with structured values (*), all of them covered: {share:.3f} of {scores.structured_documents}"
        )
    name = scores.recall(labelled.name)
    lines.append(
        f"  names ({labelled.name}) covered in full: {'none here' if name is None else f'{name:.3f}'}"
    )
    share = _share(scores.promised_clean, scores.promised_documents)
    lines.append(
        f"  documents without residue: {share:.3f} of {scores.promised_documents}, which hold one of: "
        f"{', '.join(sorted(labelled.promised))}"
    )
    lines.append(
        f"  characters masked: {scores.masked / scores.characters:.3f} (labelled, without white space: "
        f"{scores.gold / scores.characters:.3f}); documents refused: {scores.refused / scores.documents:.3f}"
    )
    lines.append(
        f"  CPU: {scores.cpu_ms_document:.1f} ms a document, {scores.cpu_ms_500_tokens:.1f} ms for {labelled.chars:,} "
        "characters (about 500 tokens)"
    )
    return "\n".join(lines)
