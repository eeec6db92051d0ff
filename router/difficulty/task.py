"""Which kind of task a request is: cue words where the request asks, and the shape of the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from weighbridge.policies.tasks import Task
from weighbridge.router.difficulty.language import ENGLISH_WORDS, Language, language_of
from weighbridge.router.difficulty.lexicon import Ballot, normalise
from weighbridge.router.difficulty.reading import Reading
from weighbridge.router.difficulty.segments import Segments, asks, take_apart
from weighbridge.router.difficulty.shape import (
    has_closed_list,
    is_about_a_text,
    is_formula,
    is_lettered,
    is_personal,
    names_a_choice,
    number_count,
    quantity_asked,
    signs_of_code,
    target_language,
)
from weighbridge.router.difficulty.view import View

_SETTLED: Final = 1.8
"""Votes from which on the user's own words settle the task and the rest only adds."""

_LEAST: Final = 0.55
_RECORD_TOOLS: Final = ("record", "store", "save", "extract", "submit", "register", "fill")
_LABEL_TOOLS: Final = ("classify", "label", "tag_", "categor")
_MASHED: Final = ("asdf", "qwer", "zxcv", "hjkl")
_KO_ENDS: Final = frozenset("요다해어야지네까줘은는이가을를에서로라법")
_BESIDE_MATERIAL: Final[tuple[tuple[Task, float], ...]] = (
    ("math", 0.6),
    ("reasoning", 0.6),
    ("knowledge", 0.5),
    ("chat", 0.7),
    ("decision", 0.6),
)


@dataclass(frozen=True, slots=True)
class Detection:
    """A task, how it was told (names of signals, never text), and the language asked in."""

    task: Task
    language: Language
    signals: tuple[str, ...]


def detect(view: View) -> Detection:
    """Name the task of a request. Never raises."""
    reading, parts, sample = view.reading, view.parts, view.lower
    user = reading.user
    words = normalise(parts.asking)
    tokens = words.split()
    language = language_of(user or reading.system)
    ballot = Ballot()
    signals: list[str] = []
    ballot.read(words, tokens, 1.0)
    _languages(parts.asking, words, tokens, ballot)
    _shape(sample, parts, ballot, signals)
    own = ballot.best()
    if own < _SETTLED and parts.other:
        _read(parts.other[:500], 0.25 if parts.material else 0.8, ballot)
    if reading.earlier and len(user) < 200 and own < 2.4:
        earlier = take_apart(reading.earlier, reading.earlier_chars)
        _read(earlier.asking, 0.6 if own < _SETTLED else 0.25, ballot, languages=True)
        signals.append("follow-up")
    if reading.system:
        role = take_apart(reading.system, len(reading.system))
        text = role.asking if role.material else reading.system[:500].lower()
        _read(text, 1.0 if own < _SETTLED else 0.3, ballot, languages=own < _SETTLED)
        signals.append("system")
    _interface(reading, ballot, signals)
    _material(reading, parts, ballot, signals)
    _figures(sample, words, parts, ballot, signals)
    if ballot.best() < _LEAST:
        return Detection(_fallback(user, parts, language), language, (*signals, "no-cue"))
    return Detection(ballot.winner(), language, tuple(signals))


def _read(text: str, share: float, ballot: Ballot, *, languages: bool = False) -> None:
    words = normalise(text)
    tokens = words.split()
    ballot.read(words, tokens, share)
    if languages:
        _languages(text, words, tokens, ballot)


def _languages(text: str, words: str, tokens: list[str], ballot: Ballot) -> None:
    """A language to put something into speaks for translation, one to answer in does not."""
    target = target_language(text, words, tokens)
    if target == "into":
        ballot.add("translation", 1.7)
    elif target == "answer-in":
        ballot.add("translation", 0.3)
    elif target == "named" and '""' in text:
        ballot.add("translation", 1.2)


def _shape(sample: str, parts: Segments, ballot: Ballot, signals: list[str]) -> None:
    """Votes from the look of the text: answer options, a closed list, code, formulas."""
    if is_lettered(sample):
        ballot.add("knowledge", 1.4)
        signals.append("options")
    elif has_closed_list(parts.asking):
        # A closed list to choose from, about a text that is there.
        ballot.add("classification", 1.7 if parts.payload or is_about_a_text(parts.asking) else 0.5)
    elif names_a_choice(parts.asking) and is_about_a_text(parts.asking):
        ballot.add("classification", 1.0)
    code = signs_of_code(sample)
    if "```" in sample or code >= (4 if len(sample) > 800 else 2):
        ballot.add("code", 1.7 + 0.3 * min(code, 4))
        signals.append("code")
    if is_formula(parts.asking if parts.material else sample, sample):
        ballot.add("math", 1.2)
        signals.append("formula")


def _interface(reading: Reading, ballot: Ballot, signals: list[str]) -> None:
    """A requested schema and offered functions: hints, as they say how to answer and not what is asked."""
    fields = reading.fields
    if fields:
        signals.append("schema")
        if not fields.isdisjoint(("summary", "abstract", "tldr", "headline")):
            ballot.add("summarization", 1.5)
        elif not fields.isdisjoint(("decision", "verdict", "approved")):
            ballot.add("decision", 1.5)
        elif not fields.isdisjoint(("translation", "translated")):
            ballot.add("translation", 1.5)
        elif reading.enums and len(fields) <= 2:
            ballot.add("classification", 1.5)
        elif len(fields) >= 2:
            ballot.add("extraction", 1.2)
    if reading.tools:
        signals.append("tools")
        if any(word in reading.tools for word in _RECORD_TOOLS):
            ballot.add("extraction", 1.6)
        elif any(word in reading.tools for word in _LABEL_TOOLS):
            ballot.add("classification", 1.6)


def _material(reading: Reading, parts: Segments, ballot: Ballot, signals: list[str]) -> None:
    """A text to work on: with a question it is to be answered from, with a request mostly to be shortened."""
    votes = ballot.votes
    if not (parts.material or len(reading.system) > 350 or reading.earlier_chars > 400):
        if "rag" in votes:
            votes["rag"] *= 0.4
        return
    signals.append("material")
    if "options" in signals:
        return
    if "formula" not in signals:
        for task, share in _BESIDE_MATERIAL:
            if task in votes:
                votes[task] *= share
    best = ballot.best()
    if parts.question:
        ballot.add("rag", 1.6 if best < _SETTLED else 0.6)
    elif parts.material and best < 1.0:
        ballot.add("summarization", 1.0)


def _figures(sample: str, words: str, parts: Segments, ballot: Ballot, signals: list[str]) -> None:
    """Figures: with a quantity asked for they speak for maths, among conditions for a decision."""
    votes = ballot.votes
    head = sample[:1_500]
    figures = number_count(head)
    quantity = "math" in votes or quantity_asked(words)
    if quantity and figures >= 1 and not parts.material:
        ballot.add("math", 1.0 if figures >= 2 else 0.6)
    sentences = head.count(". ") + head.count("? ") + head.count(".\n") + head.count("! ")
    clauses = sentences + head.count(", ") + head.count("; ")
    dense = figures >= 4 and clauses >= 5 and not parts.marked
    if dense:
        signals.append("figures")
    if dense and not quantity and not parts.material and parts.question:
        ballot.add("decision", 1.3)
    if "decision" in votes:
        conditions = dense and not parts.material
        votes["decision"] *= 1.25 if conditions else 0.85 if figures >= 2 and not quantity else 0.6
    if not parts.material and not quantity and sentences >= 2 and figures < 4 and parts.question:
        ballot.add("chat" if is_personal(words) else "reasoning", 0.9)


def _fallback(user: str, parts: Segments, language: Language) -> Task:
    """No cue at all: a question is knowledge, other speech is chat, the rest is unknown."""
    words = normalise(user[:600].lower()).split()
    if not any(character.isalpha() for word in words for character in word[:4]):
        return "unknown"
    if language == "ko":
        speech = any(word[-1] in _KO_ENDS for word in words)
    else:
        few = words[:20]
        mashed = sum(word[:4] in _MASHED or not any(c in "aeiouy" for c in word) for word in few)
        speech = mashed * 2 < len(few) or not ENGLISH_WORDS.isdisjoint(few)
    if not speech:
        return "unknown"
    if asks(parts.asking):
        return "rag" if parts.material else "knowledge"
    return "summarization" if parts.material else "chat"
