"""What a scorer is worth, as router papers measure it: plain arithmetic on outcomes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from weighbridge.router.difficulty.bands import FIRST, SECOND


def auc(scores: Sequence[float], failed: Sequence[bool]) -> float:
    """Chance that a failed row scores above one that did not fail; ties count half."""
    order = sorted(range(len(scores)), key=scores.__getitem__)
    ranks = 0.0
    i = 0
    while i < len(order):
        j = i
        while j + 1 < len(order) and scores[order[j + 1]] == scores[order[i]]:
            j += 1
        ranks += (i + j + 2) / 2 * sum(failed[order[k]] for k in range(i, j + 1))
        i = j + 1
    bad = sum(failed)
    return (ranks - bad * (bad + 1) / 2) / (bad * (len(failed) - bad))


def calibration_error(probabilities: Sequence[float], outcomes: Sequence[float]) -> float:
    """Expected calibration error over ten bins of equal width."""
    bins: list[list[tuple[float, float]]] = [[] for _ in range(10)]
    for p, y in zip(probabilities, outcomes, strict=True):
        bins[min(9, int(p * 10))].append((p, y))
    gaps = (abs(sum(p for p, _ in part) - sum(y for _, y in part)) for part in bins)
    return sum(gaps) / len(probabilities)


def apgr(scores: Sequence[float], weak: Sequence[float], strong: Sequence[float]) -> float:
    """Average performance gap recovered: how much of the strong model's lead is won, averaged over every share of
    requests sent to it, those with the highest score first. Drawing lots wins half. Ties are shared out evenly."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    lead = sum(strong) - sum(weak)
    won = area = 0.0
    i = 0
    while i < len(order):
        j = i
        while j < len(order) and scores[order[j]] == scores[order[i]]:
            j += 1
        gain = sum(strong[order[k]] - weak[order[k]] for k in range(i, j))
        area += (j - i) * (won + gain / 2)
        won += gain
        i = j
    return area / (len(scores) * lead)


def kept(scores: Sequence[float], outcomes: Sequence[tuple[float, float, float]]) -> dict[str, float]:
    """Quality as a share of the frontier's alone, and who answers, at the bounds 0.45 and 0.55.

    `outcomes` are the qualities of the 8B, the 70B and the frontier model.
    """
    roads = [0 if score < FIRST else 1 if score < SECOND else 2 for score in scores]
    reached = sum(row[road] for row, road in zip(outcomes, roads, strict=True))
    count = Counter(roads)
    shares = [count[road] / len(roads) for road in (0, 1, 2)]
    best = sum(row[2] for row in outcomes)
    return {
        "quality": reached / best,
        "quality_by_lot": sum(row[road] * shares[road] for row in outcomes for road in (0, 1, 2)) / best,
        "local": shares[0] + shares[1],
        "by_the_8b": shares[0],
    }


def macro_f1(pairs: Iterable[tuple[str, str]]) -> tuple[float, dict[str, float]]:
    """Mean F1 over the labels that occur, and each one's own; pairs of what is true and what was said."""
    told = list(pairs)
    right = Counter(true for true, said in told if true == said)
    said = Counter(said for _, said in told)
    true = Counter(true for true, _ in told)
    each = {label: 2 * right[label] / (said[label] + true[label]) for label in true}
    return sum(each.values()) / len(each), each
