"""Fitting linear models, for training alone; nothing that serves a request imports this, nor numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Row = dict[int, float]

_RARE: Final = 64
_MEMORY: Final = 12


@dataclass(frozen=True)
class Sparse:
    """Rows of few values each, in one piece."""

    index: Ints
    value: Floats
    start: Ints
    width: int

    @classmethod
    def of(cls, rows: Sequence[Row], width: int) -> Sparse:
        """Every row must hold at least one value."""
        sizes = [len(row) for row in rows]
        return cls(
            np.fromiter((key for row in rows for key in row), np.int64, sum(sizes)),
            np.fromiter((value for row in rows for value in row.values()), np.float64, sum(sizes)),
            np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64),
            width,
        )

    @property
    def row(self) -> Ints:
        """The row of each value."""
        sizes = np.diff(np.append(self.start, len(self.index)))
        return np.repeat(np.arange(len(self.start)), sizes)

    def times(self, weights: Floats) -> Floats:
        """A weighted sum of each row."""
        sums: Floats = np.add.reduceat(weights[self.index] * self.value, self.start)
        return sums

    def gram(self) -> Floats:
        """The products of all rows with each other: rare columns one by one, common ones all at once."""
        rows = self.row
        order = np.argsort(self.index, kind="stable")
        _, first = np.unique(self.index[order], return_index=True)
        result: Floats = np.zeros((len(self.start), len(self.start)))
        common: list[Floats] = []
        for place in np.split(order, first[1:]):
            where, value = rows[place], self.value[place]
            if len(place) <= _RARE:
                result[np.ix_(where, where)] += np.outer(value, value)
            else:
                column = np.zeros(len(self.start))
                column[where] = value
                common.append(column)
        if common:
            dense = np.array(common)
            result += np.asarray(dense.T @ dense, np.float64)
        return result


def ridge(gram: Floats, targets: Floats, weights: Floats, penalty: float) -> Floats:
    """Least squares with a ridge, in terms of the rows: predictions are products with the rows times the result."""
    return np.asarray(np.linalg.solve(gram + np.diag(penalty / weights), targets), np.float64)


def logistic_fit(rows: Sparse, targets: Floats, weights: Floats, penalty: Floats, steps: int = 150) -> Floats:
    """Logistic regression on targets from 0 to 1, by L-BFGS; `penalty` is the ridge of each column."""
    row, row_count = rows.row, len(rows.start)

    def slope(at: Floats) -> tuple[float, Floats]:
        reach = rows.times(at)
        chance = 1.0 / (1.0 + np.exp(-reach))
        loss = float(
            np.sum(weights * (np.logaddexp(0.0, reach) - targets * reach)) + 0.5 * np.sum(penalty * at * at)
        )
        back = (weights * (chance - targets))[row] * rows.value
        return loss, np.bincount(rows.index, back, rows.width) + penalty * at

    assert row_count == len(targets)
    return minimise(slope, np.zeros(rows.width), steps)


def minimise(slope: Any, start: Floats, steps: int) -> Floats:
    """Minimise a smooth convex function; `slope` gives its value and gradient."""
    at = start
    loss, gradient = slope(at)
    moves: list[Floats] = []
    turns: list[Floats] = []
    for _ in range(steps):
        direction = -_curved(gradient, moves, turns)
        step = 1.0 if moves else 1.0 / max(1.0, float(np.linalg.norm(gradient)))
        downhill = float(gradient @ direction)
        while True:
            there = at + step * direction
            loss_there, gradient_there = slope(there)
            if loss_there <= loss + 1e-4 * step * downhill or step < 1e-10:
                break
            step *= 0.5
        move, turn = there - at, gradient_there - gradient
        if float(move @ turn) > 1e-12:
            moves.append(move)
            turns.append(turn)
            del moves[:-_MEMORY], turns[:-_MEMORY]
        small = abs(loss - loss_there) < 1e-9 * max(1.0, abs(loss))
        at, loss, gradient = there, loss_there, gradient_there
        if small:
            break
    return at


def _curved(gradient: Floats, moves: list[Floats], turns: list[Floats]) -> Floats:
    """The gradient seen through the curvature that the last steps met."""
    result = gradient.copy()
    shares: list[float] = []
    for move, turn in zip(reversed(moves), reversed(turns), strict=True):
        share = float(move @ result) / float(move @ turn)
        shares.append(share)
        result -= share * turn
    if moves:
        result *= float(moves[-1] @ turns[-1]) / float(turns[-1] @ turns[-1])
    for move, turn, share in zip(moves, turns, reversed(shares), strict=True):
        result += move * (share - float(turn @ result) / float(move @ turn))
    return result


def platt(scores: Floats, targets: Floats, weights: Floats) -> tuple[float, float]:
    """Slope and shift in log-odds that make scores of rows not fitted on into probabilities."""
    rows = Sparse.of([{0: float(score), 1: 1.0} for score in scores], 2)
    found = logistic_fit(rows, targets, weights, np.full(2, 1e-6))
    return float(found[0]), float(found[1])
