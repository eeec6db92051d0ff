"""The weights of tasks and risks, read from one artefact, and the arithmetic on them.

All fields of one word (a vote for each task, a push for each of the two risks) stand side by side in one large integer,
32 bits each. So adding up a text is one sum over integers in C, exact in any order, taken apart once at the end.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from weighbridge.policies.tasks import Task
from weighbridge.router.difficulty.language import Language
from weighbridge.router.difficulty.marks import Hard
from weighbridge.router.difficulty.words import Vocabulary, found_in_asking

KINDS: Final = ("word", "pair", "skip", "head", "ending", "heads", "mark")
"""The tables of the artefact; a key of `pair`, `skip` and `heads` is two words with a space between."""

ZONES: Final = {"asking": 10, "other": 4, "system": 10, "earlier": 3}
"""How much a word counts in a vote for a task, in tenths, by where it stands."""

FEWEST: Final = 4.0
"""Sums over words are divided by the root of how many there are, and by no less than the root of this."""

HELD: Final = 0.5
"""The furthest that words alone may lower a risk, in log-odds: what a request is stuffed with must not hide it."""

MENTIONED: Final = 0.05
"""What moved a risk by less, in log-odds, is not told."""

_OWN: Final = ("asking", "other")
EXAM: Final = "options"
_NO_SLOT: Final = (1.0, 0.0)
_FAR: Final = -6.0
_WIDTH: Final = 4
ZERO: Final = 128


class Weighed(NamedTuple):
    """What the weights say of a request.

    Args:
        task: the likeliest task.
        p_8b_fails: P(the 8B fails), 0 to 1.
        p_70b_fails: P(the 70B fails and the frontier model does not), 0 to 1.
        moved: what moved the first of them, in log-odds, by names of ours; `words` stands for all words together,
            `evidence` for proofs, failing code and conditions, `floor` for the least risk that the first two stand for.
        answered: how far it is one of the tasks that outcomes exist of: a question to be answered, 0 to 1.
    """

    task: Task
    p_8b_fails: float
    p_70b_fails: float
    moved: tuple[tuple[str, float], ...]
    answered: float


def logistic(value: float) -> float:
    """A probability from log-odds; never overflows."""
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, value))))


def log_odds(probability: float) -> float:
    """The reverse of `logistic`, for probabilities strictly between 0 and 1."""
    return math.log(probability / (1.0 - probability))


class Likely(NamedTuple):
    """The tasks that are not out of the question, by place and probability.

    Args:
        fitted: those whose risks were fitted on outcomes in the language asked in.
        judged: all others.
        mass: the probability of `fitted` together.
    """

    fitted: list[tuple[int, float]]
    judged: list[tuple[int, float]]
    mass: float


class _Risk:
    """One of the two risks."""

    def __init__(self, content: dict[str, Any], name: str, place: int) -> None:
        head: dict[str, Any] = content["heads"][name]
        which = ("8b", "70b").index(name)
        self.word_scale: float = content["word_scale"][place]
        self.mark_scale: float = content["mark_scale"][place]
        self._bias: float = head["bias"]
        self._slope: float = head["slope"]
        self._shift: float = head["shift"]
        self._lean: list[float] = head["lean"]
        self._prior: list[float] = head["prior"]
        self._fitted = [task in content["fitted_tasks"] for task in content["tasks"]]
        damping: dict[str, float] = content["damping"]
        self._damping = [damping["fitted" if fitted else "judged"] for fitted in self._fitted]
        self._hard: dict[str, float] = {key: pair[which] for key, pair in content["hard"].items()}
        of_fitted = [prior for prior, fitted in zip(self._prior, self._fitted, strict=True) if fitted]
        self._exam_prior = sum(of_fitted) / max(1, len(of_fitted))
        self._exam_damping = damping["fitted"]
        self._slots: dict[str, list[float]] = head["slots"]

    def evidence(self, hard: Hard) -> float:
        """What proofs, failing code and conditions add, in log-odds."""
        weights = self._hard
        return (
            weights["constraint"] * hard.constraints
            + weights["proof"] * hard.proof
            + weights["failing"] * hard.failing
        )

    def least(self, hard: Hard) -> float:
        """The risk that a proof or failing code stands for by itself."""
        if hard.proof:
            return self._hard["proof_floor"]
        return self._hard["failing_floor"] if hard.failing else 0.0

    def of(
        self,
        likely: Likely,
        language: Language,
        words: float,
        structure: float,
        hard: Hard,
        exam: bool,
    ) -> float:
        """The risk over all tasks a request may be: as fitted where it was fitted, from judged priors elsewhere.

        Words count in English alone, as no outcomes of other languages exist; each of these has a slot of its own, a
        slope and a shift in log-odds. Of an `exam` question no task is held to be easier than answering it, so that a
        label asked for beside it hides nothing.
        """
        slope, shift = self._slots.get(language, _NO_SLOT)
        push = self.evidence(hard) if hard.any else 0.0
        least = risk = 0.0
        if exam and language != "en":
            inner = self._exam_prior + self._exam_damping * structure
            least = logistic(slope * inner + shift + push)
        elif likely.fitted or exam:
            lean = sum([share * self._lean[place] for place, share in likely.fitted])
            inner = self._bias + max(-HELD, words) + structure + lean / (likely.mass or 1.0)
            risk = logistic(self._slope * inner + self._shift + push)
            least = risk if exam else 0.0
            risk *= likely.mass
        for place, share in likely.judged:
            inner = self._prior[place] + self._damping[place] * structure
            risk += share * max(least, logistic(slope * inner + shift + push))
        return risk

    def steps(self, likely: Likely) -> tuple[float, float]:
        """By how much one step of log-odds in words, and one in structure, moves this risk, in log-odds: roughly, as
        if it moved all tasks from the middle."""
        fitted = self._slope * likely.mass
        return fitted, fitted + sum([share * self._damping[place] for place, share in likely.judged])


class Model:
    """Task and risks of a request whose words and marks have been looked up."""

    def __init__(self, raw: bytes, code: bytes = b"") -> None:
        """Read an artefact; `code` counts for its version.

        Raises:
            ValueError: it is not JSON, or the tables do not fit the weights.
            KeyError: a part is missing.
        """
        content: dict[str, Any] = json.loads(raw)
        self.version: str = f"{content['name']}@{hashlib.sha256(raw + code).hexdigest()[:8]}"
        self.tasks: tuple[Task, ...] = tuple(content["tasks"])
        self.unknown: tuple[float, float] = tuple(content["unknown"])
        fields = len(self.tasks) + 2
        self._layout = struct.Struct(f"<{fields}I")
        vectors = _packed(base64.b64decode(content["weights"]), fields)
        keys: dict[str, list[str]] = content["tables"]
        if sum(map(len, keys.values())) + 1 != len(vectors):
            raise ValueError("the tables and the weights of the artefact do not fit together")
        numbers = iter(range(1, len(vectors)))
        tables: dict[str, dict[Any, int]] = {}
        for kind in KINDS:
            names: Iterable[Any] = map(_pair, keys[kind]) if kind in ("pair", "skip", "heads") else keys[kind]
            tables[kind] = {name: number for name, number in zip(names, numbers, strict=False)}
        self.known = Vocabulary(*[tables[kind] for kind in KINDS[:-1]])
        self._vector = vectors.__getitem__
        self._fitted = frozenset(self.tasks.index(task) for task in content["fitted_tasks"])
        self._eight = _Risk(content, "8b", len(self.tasks))
        self._seventy = _Risk(content, "70b", len(self.tasks) + 1)
        self._marks: dict[str, tuple[int, str, float | None]] = {}
        for name, number in tables["mark"].items():
            push = self._eight.mark_scale * (self._apart(vectors[number])[-2] - ZERO)
            self._marks[name] = vectors[number], name, push if abs(push) >= MENTIONED else None
        self._bias: list[float] = content["bias"]
        self._word_scale: list[float] = content["word_scale"]
        self._mark_scale: list[float] = content["mark_scale"]
        self._sharpness: float = content["sharpness"]

    def weigh(
        self,
        zones: dict[str, set[int]],
        marks: list[str],
        hard: Hard,
        language: Language,
        *,
        tall: bool = False,
    ) -> Weighed:
        """Weigh what was found in each zone, and the marks; of a `tall` turn only what asks counts for the risks."""
        own_zones = _OWN[:1] if tall else _OWN
        total = votes = square = own = own_votes = 0
        for zone, found in zones.items():
            share, part, count = ZONES[zone], sum(map(self._vector, found)), len(found)
            total += share * part
            votes += share * count
            square += share * share * count
            if zone in own_zones:
                own += part
                own_votes += count
        seen = [known for name in marks if (known := self._marks.get(name)) is not None]
        by_mark = self._apart(sum([vector for vector, _, _ in seen]))
        shares = self._likely(
            self._apart(total), votes, math.sqrt(max(100 * FEWEST, square)), by_mark, len(seen)
        )
        fitted = [entry for entry in shares if entry[0] in self._fitted] if language == "en" else []
        judged = [entry for entry in shares if entry not in fitted] if fitted else shares
        likely = Likely(fitted, judged, sum([share for _, share in fitted]))
        root = math.sqrt(max(FEWEST, own_votes))
        eight, seventy = self._eight, self._seventy
        exam = EXAM in marks
        *_, words, alone = self._apart(own)
        nought, even = own_votes * ZERO, len(seen) * ZERO
        by_words = (words - nought) * eight.word_scale / root
        p_8b = eight.of(likely, language, by_words, (by_mark[-2] - even) * eight.mark_scale, hard, exam)
        p_70b = seventy.of(
            likely,
            language,
            (alone - nought) * seventy.word_scale / root,
            (by_mark[-1] - even) * seventy.mark_scale,
            hard,
            exam,
        )
        of_words, of_marks = eight.steps(likely)
        moved = [(name, of_marks * push) for _, name, push in seen if push is not None]
        moved.append(("words", of_words * max(-HELD, by_words)))
        if hard.any:
            moved.append(("evidence", eight.evidence(hard)))
            if p_8b < (least := eight.least(hard)):
                moved.append(("floor", log_odds(least) - log_odds(p_8b)))
            p_8b, p_70b = max(p_8b, eight.least(hard)), max(p_70b, seventy.least(hard))
        answered = likely.mass if fitted else self._answered(shares)
        return Weighed(self.tasks[max(shares, key=_share)[0]], p_8b, p_70b, tuple(moved), answered)

    def leaning(self, text: str) -> float:
        """How far the words of a lower-case text, alone, are those of a question to be answered, 0 to 1."""
        found = found_in_asking(text, self.known)
        total, count = sum(map(self._vector, found)), len(found)
        return self._answered(
            self._likely(self._apart(total), count, math.sqrt(max(FEWEST, count)), self._apart(0), 0)
        )

    def _answered(self, shares: list[tuple[int, float]]) -> float:
        return sum([share for place, share in shares if place in self._fitted])

    def _apart(self, total: int) -> tuple[int, ...]:
        """The fields of a sum of vectors."""
        return self._layout.unpack(total.to_bytes(self._layout.size, "little"))

    def _likely(
        self, by_word: tuple[int, ...], votes: int, root: float, by_mark: tuple[int, ...], marks: int
    ) -> list[tuple[int, float]]:
        """The tasks that are not out of the question, with their probabilities."""
        nought, even = votes * ZERO, marks * ZERO
        votes_of = [
            bias + (word - nought) * scale / root + (mark - even) * mark_scale
            for bias, word, scale, mark, mark_scale in zip(
                self._bias, by_word, self._word_scale, by_mark, self._mark_scale, strict=False
            )
        ]
        top, sharpness = max(votes_of), self._sharpness
        least = top + _FAR / sharpness
        powers = [
            (place, math.exp(sharpness * (vote - top)))
            for place, vote in enumerate(votes_of)
            if vote >= least
        ]
        whole = sum([power for _, power in powers])
        return [(place, power / whole) for place, power in powers]


def _share(entry: tuple[int, float]) -> float:
    return entry[1]


def _pair(key: str) -> tuple[str, str]:
    first, _, second = key.partition(" ")
    return first, second


def _packed(weights: bytes, fields: int) -> list[int]:
    """Spread bytes to fields of four bytes and read each row as one integer. Row 0 stands for nothing."""
    spread = bytearray(_WIDTH * len(weights))
    spread[::_WIDTH] = weights
    size = _WIDTH * fields
    return [
        0,
        *[int.from_bytes(spread[place : place + size], "little") for place in range(0, len(spread), size)],
    ]
