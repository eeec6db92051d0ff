"""Which words and marks tell which task: a ridge on labelled prompts, with what single words mean as a second view."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from weighbridge.policies.tasks import TASKS
from weighbridge.router.difficulty.examples import FOLDS, Example, Learner
from weighbridge.router.difficulty.fitting import Floats, Row, Sparse, ridge
from weighbridge.router.difficulty.meaning import vectors_of
from weighbridge.router.difficulty.measures import macro_f1
from weighbridge.router.difficulty.model import FEWEST, ZONES

LABELS: Final = tuple(task for task in TASKS if task != "unknown")
GAIN: Final = {"word": 1.0, "pair": 1.0, "skip": 0.8, "head": 1.0, "ending": 1.0, "heads": 0.8, "mark": 0.12}
"""How freely the weights of each kind may move."""

PENALTY: Final = 0.6
BIAS: Final = 0.05
LEAST_TASKS: Final = {"pair": 3, "skip": 4, "heads": 3}
"""In how many labelled prompts something must occur to be learnt; `SELDOM` where its kind is not named."""

SELDOM: Final = 2
LEAST_OUTCOMES: Final = {"word": 5, "mark": 5, "pair": 10}
"""The same for prompts with outcomes, which teach these kinds alone."""

FREQUENT: Final = 100.0
MEANING: Final = 0.8


@dataclass(frozen=True)
class TaskFit:
    """What was learnt of tasks.

    Args:
        names: kind and key of each known number, from 1.
        weights: one row a number (row 0 unused), one column a task.
        bias: one value a task.
        sharpness: what votes are multiplied by before they become probabilities.
        number: the known number of each of the learner's numbers.
        marks: the known number of each mark.
        cross_validated: macro-F1 by language, over prompts whose fold was left out.
    """

    names: list[tuple[str, Any]]
    weights: Floats
    bias: Floats
    sharpness: float
    number: dict[int, int]
    marks: dict[str, int]
    cross_validated: dict[str, float]

    def zones(self, example: Example) -> dict[str, list[int]]:
        """The known numbers in each zone."""
        number = self.number
        return {
            zone: sorted(number[n] for n in found if n in number)
            for zone, found in example.seen.zones.items()
        }

    def mark_numbers(self, example: Example) -> list[int]:
        """The known numbers of the marks."""
        return [self.marks[mark] for mark in example.seen.marks if mark in self.marks]

    def shares(self, example: Example) -> Floats:
        """Probabilities of the tasks."""
        votes = self.bias.copy()
        for number, value in row_of(self.zones(example), self.mark_numbers(example)).items():
            votes += self.weights[number] * value
        powers: Floats = np.exp(self.sharpness * (votes - votes.max()))
        chances: Floats = powers / powers.sum()
        return chances


def row_of(zones: dict[str, list[int]], marks: Sequence[int]) -> Row:
    """Values of one prompt: words by their zones, divided by the root of how many there are; marks as they are."""
    square = sum(ZONES[zone] ** 2 * len(found) for zone, found in zones.items())
    root = math.sqrt(max(FEWEST * 100, square))
    row: Row = {}
    for zone, found in zones.items():
        for number in found:
            row[number] = row.get(number, 0.0) + ZONES[zone] / root
    return row | dict.fromkeys(marks, 1.0)


def fit_tasks(
    learner: Learner,
    told: Sequence[Example],
    outcomes: Sequence[Example],
    *,
    vectors: bool,
    cache: Path | None,
) -> TaskFit:
    """Fit on labelled prompts; `outcomes` adds words that the risks will want."""
    told = [*told, *[example for example in outcomes if example.task]]
    names, number, marks, frequency = _known(learner, told, outcomes, vectors)
    empty = TaskFit(names, np.zeros((0, 0)), np.zeros(0), 1.0, number, marks, {})
    rows = [row_of(empty.zones(example), empty.mark_numbers(example)) for example in told]
    gain = np.array(
        [
            0.0,
            *[
                GAIN[kind] if often >= LEAST_TASKS.get(kind, SELDOM) else 0.0
                for (kind, _), often in zip(names, frequency, strict=True)
            ],
        ]
    )
    meaning, strength = (
        _meaning(names, frequency, cache)
        if vectors
        else (np.zeros((len(names) + 1, 1)), np.zeros(len(names) + 1))
    )
    wide = len(names) + 1
    scaled = Sparse.of([{key: value * gain[key] for key, value in row.items()} for row in rows], wide)
    seconds = np.array(
        [
            sum(
                (value * strength[key] * meaning[key] for key, value in row.items() if strength[key]),
                np.zeros(meaning.shape[1]),
            )
            for row in rows
        ]
    )
    gram = scaled.gram() + seconds @ seconds.T + BIAS
    targets = np.array([[float(example.task == label) for label in LABELS] for example in told]) - 1 / len(
        LABELS
    )
    weight = np.array([example.weight for example in told])
    fold = np.array([example.fold for example in told])
    held = np.zeros_like(targets)
    for part in range(FOLDS):
        out, rest = np.flatnonzero(fold == part), np.flatnonzero(fold != part)
        if len(out):
            found = ridge(gram[np.ix_(rest, rest)], targets[rest], weight[rest], PENALTY)
            held[out] = gram[np.ix_(out, rest)] @ found
    tested = np.flatnonzero(fold >= 0)
    truth = [LABELS.index(told[i].task) for i in tested]
    found = ridge(gram, targets, weight, PENALTY)
    weights = np.zeros((wide, len(LABELS)))
    np.add.at(
        weights, scaled.index, (scaled.value[:, None] * found[scaled.row]) * gain[scaled.index][:, None]
    )
    weights += (meaning * strength[:, None]) @ (seconds.T @ found)
    return TaskFit(
        names, weights, BIAS * found.sum(axis=0), _sharpness(held[tested], truth), number, marks,
        _by_language(told, tested, held),
    )  # fmt: skip


def _known(
    learner: Learner, told: Sequence[Example], outcomes: Sequence[Example], vectors: bool
) -> tuple[list[tuple[str, Any]], dict[int, int], dict[str, int], list[int]]:
    """The numbers worth keeping, renumbered kind by kind, with how many labelled prompts hold each."""
    in_tasks, in_outcomes = (
        Counter(n for e in examples for n in _numbers(learner, e)) for examples in (told, outcomes)
    )
    keep: list[int] = []
    for old, (kind, key) in enumerate(learner.names, 1):
        often = in_tasks[old] >= LEAST_TASKS.get(kind, SELDOM)
        helps = kind in LEAST_OUTCOMES and in_outcomes[old] >= LEAST_OUTCOMES[kind]
        # What a word means tells something of its task even if it was met once.
        if often or helps or (vectors and kind == "word" and key.isalpha() and in_tasks[old]):
            keep.append(old)
    order = list(GAIN)
    keep.sort(key=lambda old: (order.index(learner.names[old - 1][0]), learner.names[old - 1][1]))
    names = [learner.names[old - 1] for old in keep]
    number = {old: new for new, old in enumerate(keep, 1)}
    marks = {name: new for new, (kind, name) in enumerate(names, 1) if kind == "mark"}
    return names, number, marks, [in_tasks[old] for old in keep]


def _numbers(learner: Learner, example: Example) -> set[int]:
    marks = {learner.marks[mark] for mark in example.seen.marks}
    return marks.union(*example.seen.zones.values())


def _meaning(names: list[tuple[str, Any]], frequency: list[int], cache: Path | None) -> tuple[Floats, Floats]:
    """A vector for each number that is a word, and how much it counts: the rarer the word, the more."""
    places = [place for place, (kind, key) in enumerate(names, 1) if kind == "word" and key.isalpha()]
    found = vectors_of([names[place - 1][1] for place in places], cache)
    meaning = np.zeros((len(names) + 1, found.shape[1]))
    meaning[places] = found
    strength = np.zeros(len(names) + 1)
    strength[places] = [MEANING / math.sqrt(1.0 + frequency[place - 1] / FREQUENT) for place in places]
    return meaning, strength


def _sharpness(held: Floats, truth: Sequence[int]) -> float:
    """The factor under which votes of left-out prompts become the likeliest probabilities."""

    def loss(factor: float) -> float:
        votes = held * factor
        votes -= votes.max(axis=1, keepdims=True)
        chance = votes - np.log(np.exp(votes).sum(axis=1, keepdims=True))
        return -float(chance[np.arange(len(truth)), truth].mean())

    return min((factor / 4 for factor in range(4, 100)), key=loss)


def _by_language(told: Sequence[Example], tested: Any, held: Floats) -> dict[str, float]:
    pairs: dict[str, list[tuple[str, str]]] = {}
    for i in tested:
        said = LABELS[int(held[i].argmax())]
        pairs.setdefault(told[i].row.get("lang", "en"), []).append((told[i].task, said))
    return {lang: round(macro_f1(found)[0], 4) for lang, found in sorted(pairs.items())}
