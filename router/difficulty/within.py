"""The question inside a request, without instructions, greetings and rows of labels around it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from weighbridge.router.difficulty.language import ENGLISH_WORDS

Leaning = Callable[[str], float]
"""How far the words of a text are those of a question to be answered, 0 to 1."""

_PIECES: Final = 2
"""So many pieces may be taken off at either end."""

_LONGEST: Final = 240
"""A piece longer than that, in characters, is left where it is."""

_LEAD: Final = 0.6
"""A piece whose words lean to a question by less than this may be taken off."""

_BODY: Final = 0.35
"""What is left is looked at closely only if its words lean so far."""

_ASKED: Final = 0.2
"""What a question mark or a question word is worth beside them."""

LOOKED_AT: Final = 400
_LEAST: Final = 12
_MOST_LINES: Final = 6
_FAR: Final = 1_200
"""Of what stands before answers to choose from, no more than a paragraph is taken where it is longer than this."""

_BEHIND_LETTER: Final = 6

_ROW: Final = 6
"""So many words without one that sentences are made with are a row."""

_JOINING: Final = frozenset(["or", "and", "yes", "no", "not"])
_FUNCTION_WORDS: Final = ENGLISH_WORDS - _JOINING
_AROUND_WORD: Final = ",.;:!"
_ENDS: Final = re.compile(r"(?<=[:.!?…]) |\n+")
_ENDS_OR_ANEW: Final = re.compile(
    r"(?<=[:.!?…]) |\n+"
    r"|(?<!just)(?<!please)(?<!now) (?=(?:please |just |now )?(?:classify|categori[sz]e|label|tag|sort|rate|translate"
    r"|summari[sz]e|shorten|extract|rewrite|rephrase|put|hello|hi|hey|thanks|thank|quick|this is|is this|which label"
    r"|pick)\b)"
)
"""Where a piece ends, and, for what is put behind without a sign, where an order or a greeting begins."""

_FORMULA: Final = re.compile(r"[\\^=]|\$[a-z|(\-]")
"""An amount of money is none."""

_ORDERS: Final = ("def ", " find ", "calculate ", "determine ", "compute ")
_INTERROGATIVES: Final = ("what ", "which ", "who ", "whose ", "whom ", "when ", "where ", "why ", "how ")
_OPENINGS: Final = (
    *_INTERROGATIVES, "name ", "evaluate ", "solve ", "find ", "write a ", "write the ", "prove ", "explain ",
    "describe ", "simplify ", "express ", "show ", "give ", "suppose ", "let ", "consider ", "if ", "in which ",
    "at what ",
)  # fmt: skip
_QUOTES: Final = ('"', "'", "“", "「", "‘")
_LATIN: Final = re.compile("[a-z]")
_HANGUL: Final = re.compile("[가-힣]")
_ANSWER: Final = re.compile(r"\n[^\w\n]{0,4}[a-j][.):\]]")
QUESTION_KEY: Final = '"question"'
_CHOICES: Final = ("choices", "options", "answers")
_LETTERS: Final = "abcdefghij"


def may_hold_question(text: str, asking: str) -> bool:
    """Whether it is worth a search, told cheaply: most texts to be labelled, translated or summarised ask nothing.

    Args:
        text: a turn made ready.
        asking: the pieces of it that ask, one a line.
    """
    if (
        "?" in text
        or ("\n" in asking and (text.isascii() or _LATIN.search(asking)))
        or _FORMULA.search(text) is not None
        or any([word in text for word in _ORDERS])
    ):
        return True
    if len(text) > LOOKED_AT:
        return False
    return "\n" not in text or _is_open(text) or any([word in text for word in _INTERROGATIVES])


def question_in(text: str, leaning: Leaning) -> str | None:
    """The question that a turn made ready holds beside other things; None where none is found."""
    if QUESTION_KEY in text and (asked := _out_of_json(text)):
        return asked
    body = _between(text, leaning)
    if body == text and not text.isascii():
        body = _of_one_script(text)
    return body if len(body) < len(text) else None


def is_question(text: str, leaning: Leaning) -> bool:
    """Whether a text is worth a close look as a question: it asks, and its words lean to it. What is quoted is none."""
    if len(text) < _LEAST or text.startswith(_QUOTES):
        return False
    return _asks(text) and leaning(text[:LOOKED_AT]) >= _BODY


def has_tail(text: str) -> bool:
    """Whether anything but a few letters stands behind the last of the answers to choose from."""
    answers = [found.start() for found in _ANSWER.finditer(text)]
    return (
        bool(answers)
        and len(text) - text.find("\n", answers[-1] + 1) > _LEAST
        and "\n" in text[answers[-1] + 1 :]
    )


def exam_in(text: str, leaning: Leaning) -> str:
    """A question with answers to choose from, out of what stands around it."""
    answers = [found.start() for found in _ANSWER.finditer(text)]
    if not answers:
        return _between(text, leaning)
    stem, listed, last = text[: answers[0]], text[answers[0] :], answers[-1] - answers[0]
    end = listed.find("\n", last + 1)
    listed = listed if end < 0 else listed[:end]
    anew = _ENDS_OR_ANEW.search(listed, last + _BEHIND_LETTER)
    if anew is not None and leaning(listed[anew.end() :]) < _LEAD:
        listed = listed[: anew.start()]
    if len(stem) > _FAR:
        stem = stem[stem.rfind("\n\n") + 1 :].lstrip()
    return _between(stem, leaning, behind=False) + listed


def _between(text: str, leaning: Leaning, *, behind: bool = True) -> str:
    """What is left without rows of words, and without pieces before and `behind` that speak for no question."""
    words = text[:_LONGEST].split(" ")
    if count := _row(words):
        text = text[len(" ".join(words[:count])) + 1 :]
    words = text[-_LONGEST:].split(" ")[::-1]
    if behind and (count := _row(words)):
        text = text[: -len(" ".join(words[:count])) - 1]
    breaks: list[tuple[int, int]] = []
    at = 0
    while len(breaks) < _PIECES and (found := _ENDS.search(text, at, at + _LONGEST)) is not None:
        breaks.append(found.span())
        at = found.end()
        if "\n" in found.group():
            # An instruction that has a line of its own ends there.
            break
    if behind:
        late = [found.span() for found in _ENDS_OR_ANEW.finditer(text, max(at, len(text) - 2 * _LONGEST))]
        own_line = bool(late) and text[late[-1][0]] == "\n"
        breaks += late[-1:] if own_line else late[-_PIECES:]
    starts, ends = [0, *[end for _, end in breaks]], [*[start for start, _ in breaks], len(text)]
    leans = [_lean(text[start:end], leaning) for start, end in zip(starts, ends, strict=True)]
    best = max(range(len(leans)), key=lambda place: leans[place][1])
    first, last = 0, len(leans) - 1
    while first < best and leans[first][0] < _LEAD:
        first += 1
    while behind and last > best and leans[last][0] < _LEAD:
        last -= 1
    return text[starts[first] : ends[last]]


def _lean(piece: str, leaning: Leaning) -> tuple[float, float]:
    """How far a piece leans to a question, by its words, and by its signs as well: what is long or holds a formula is
    not taken off."""
    if len(piece) > _LONGEST or _FORMULA.search(piece) is not None:
        return 1.0, 1.0
    words = leaning(piece)
    return words, words + (_ASKED if "?" in piece or piece.startswith(_INTERROGATIVES) else 0.0)


def _row(words: list[str]) -> int:
    """How many words at the beginning are a row of them and no sentence."""
    bare = 0
    for number, word in enumerate(words):
        plain = word.strip(_AROUND_WORD)
        if plain in _FUNCTION_WORDS or not plain.isalpha() or not plain.isascii():
            return number if bare >= _ROW else 0
        bare += plain not in _JOINING
    return 0


def _of_one_script(text: str) -> str:
    """What is in Latin letters, where all Hangul stands before it or behind it."""
    latin, hangul = _LATIN.search(text), _HANGUL.search(text)
    if latin is None or hangul is None:
        return text
    if hangul.start() < latin.start():
        rest = text[latin.start() :]
        return text if _HANGUL.search(rest) else rest
    return text if _LATIN.search(text, hangul.start()) else text[: hangul.start()].rstrip()


def _asks(text: str) -> bool:
    if (
        "?" in text
        or _FORMULA.search(text) is not None
        or any([word in text for word in _ORDERS])
        or _is_open(text)
    ):
        return True
    pieces = (*_ENDS.split(text[:_LONGEST]), *_ENDS.split(text[-_LONGEST:]))
    return any([piece.startswith(_OPENINGS) for piece in pieces])


def _is_open(text: str) -> bool:
    """Whether one of the first lines ends as no sentence does, to be completed."""
    return any(
        [line.rpartition(" ")[2] in ENGLISH_WORDS for line in text.split("\n", _MOST_LINES)[:_MOST_LINES]]
    )


def _out_of_json(text: str) -> str:
    """A question and its answers, written as in an exam; empty where there is none."""
    try:
        found: Any = json.loads(text[text.index("{") : text.rindex("}") + 1])
    except (ValueError, RecursionError):
        return ""
    if not isinstance(found, dict) or not isinstance(found.get("question"), str):
        return ""
    listed: Any = next((found[name] for name in _CHOICES if name in found), ())
    if isinstance(listed, dict):
        listed = list(listed.values())
    answers = [str(answer) for answer in listed[: len(_LETTERS)]] if isinstance(listed, list) else []
    lines = [f"{letter}. {answer}" for letter, answer in zip(_LETTERS, answers, strict=False)]
    return "\n".join([found["question"], *lines])
