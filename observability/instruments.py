"""Counters, gauges and histograms whose values live in this process, whatever the environment says.

prometheus_client picks its storage when it is imported: with PROMETHEUS_MULTIPROC_DIR set, as vLLM sets it, every
value goes to memory-mapped files that all processes share. These instruments hold plain numbers and hand them to a
registry when it is scraped.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Final, Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

OTHER: Final = "other"
"""Where a label value outside the closed set is counted: no caller can make the set grow."""


class Counter:
    """A number that only goes up."""

    __slots__ = ("_lock", "_value")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        """Add `amount`.

        Raises:
            ValueError: `amount` is negative.
        """
        if amount < 0:
            raise ValueError("a counter only goes up")
        with self._lock:
            self._value += amount

    @property
    def value(self) -> float:
        return self._value


class Gauge:
    """A number that goes up and down: one that is set, or one that is read off its source when it is looked at."""

    __slots__ = ("_lock", "_source", "_value")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._value = 0.0
        self._source: Callable[[], float] | None = None

    def follow(self, source: Callable[[], float]) -> None:
        """From now on the value is what `source` says; it may be asked from any thread."""
        self._source = source

    def set(self, value: float) -> None:
        self._value = float(value)

    def inc(self, amount: float = 1.0) -> None:
        with self._lock:
            self._value += amount

    def dec(self, amount: float = 1.0) -> None:
        self.inc(-amount)

    @property
    def value(self) -> float:
        return self._value if self._source is None else float(self._source())


class Histogram:
    """How often a value fell under each of some bounds. Values and bounds share one unit."""

    __slots__ = ("_bounds", "_counts", "_lock", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._lock = threading.Lock()
        self._bounds = (*bounds, math.inf)
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        index = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[index] += 1
            self._sum += value

    def snapshot(self) -> tuple[list[tuple[str, float]], float]:
        """Cumulative counts by upper bound, and the sum of all values."""
        with self._lock:
            counts, total = list(self._counts), self._sum
        buckets: list[tuple[str, float]] = []
        running = 0
        for bound, count in zip(self._bounds, counts, strict=True):
            running += count
            buckets.append(("+Inf" if math.isinf(bound) else str(bound), float(running)))
        return buckets, total

    @property
    def count(self) -> int:
        return sum(self._counts)

    @property
    def sum(self) -> float:
        return self._sum


T = TypeVar("T", Counter, Gauge, Histogram)


class Family(Generic[T]):
    """One metric with labels, a child for each combination of their values.

    Args:
        make: makes one child.
        labels: label names and the closed set of values each may have.
        ahead: make every child at once, so that what has not happened yet shows as 0. Without it a child is there from
            its first use on: for large sets of which few are used.
    """

    def __init__(
        self, make: Callable[[], T], labels: Mapping[str, Sequence[str]], *, ahead: bool = True
    ) -> None:
        self.names = tuple(labels)
        self._make: Callable[[], T] = make
        self._allowed = tuple(frozenset(values) for values in labels.values())
        self._children: dict[tuple[str, ...], T] = (
            {values: make() for values in product(*labels.values())} if ahead else {}
        )
        self._lock = threading.Lock()
        self.kind: type[Counter] | type[Gauge] | type[Histogram] = type(make())

    def labels(self, *values: str, **named: str) -> T:
        """The child for these label values, by position or by name; unknown values become `other`.

        Raises:
            ValueError: a label is missing or not one of this metric's.
        """
        child = self._children.get(values)
        if child is not None and not named:
            return child
        if named:
            if values or named.keys() != set(self.names):
                raise ValueError(f"the labels are {', '.join(self.names)}")
            values = tuple(named[name] for name in self.names)
        known = self._known(values)
        with self._lock:
            return self._children.setdefault(known, self._make())

    def remove(self, *values: str) -> None:
        """Show these label values no more, until they are used again. Whoever kept the child writes to nobody."""
        with self._lock:
            self._children.pop(self._known(values), None)

    def children(self) -> list[tuple[tuple[str, ...], T]]:
        with self._lock:
            return list(self._children.items())

    def _known(self, values: tuple[str, ...]) -> tuple[str, ...]:
        if len(values) != len(self.names):
            raise ValueError(f"the labels are {', '.join(self.names)}")
        return tuple(
            value if value in allowed else OTHER for value, allowed in zip(values, self._allowed, strict=True)
        )


class Info:
    """A fact with one value at a time, shown as a label of a series that is 1."""

    __slots__ = ("_label", "value")

    def __init__(self, label: str) -> None:
        self._label = label
        self.value = ""

    def set(self, value: str) -> None:
        self.value = value

    def as_labels(self) -> dict[str, str]:
        return {self._label: self.value}


Instrument = Counter | Gauge | Histogram | Info | Family[Counter] | Family[Gauge] | Family[Histogram]


I = TypeVar("I", bound=Instrument)  # noqa: E741


class InstrumentSet:
    """Instruments by name, in a registry of their own.

    Args:
        prefix: what every name begins with.
    """

    def __init__(self, prefix: str) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._prefix = prefix
        self._shown: dict[str, tuple[str, Instrument]] = {}
        self.registry.register(self)

    def add(self, name: str, text: str, instrument: I) -> I:
        """Show `instrument` from now on; `text` says what it counts. Returns it."""
        self._shown[self._prefix + name] = (text, instrument)
        return instrument

    @property
    def names(self) -> list[str]:
        """Names of what is shown, in order."""
        return list(self._shown)

    def collect(self) -> Iterator[Metric]:
        """What prometheus_client asks for at a scrape."""
        for name, (text, instrument) in self._shown.items():
            if isinstance(instrument, Info):
                yield InfoMetricFamily(name, text, instrument.as_labels())
            elif isinstance(instrument, Family):
                yield _metric(name, text, instrument.kind, instrument.names, instrument.children())
            else:
                yield _metric(name, text, type(instrument), (), [((), instrument)])


def _metric(
    name: str,
    text: str,
    kind: type[Counter] | type[Gauge] | type[Histogram],
    labels: Sequence[str],
    children: Sequence[tuple[tuple[str, ...], Counter | Gauge | Histogram]],
) -> Metric:
    if issubclass(kind, Histogram):
        histogram = HistogramMetricFamily(name, text, labels=labels)
        for values, child in children:
            if isinstance(child, Histogram):
                histogram.add_metric(values, *child.snapshot())
        return histogram
    family: CounterMetricFamily | GaugeMetricFamily = (
        CounterMetricFamily(name, text, labels=labels)
        if issubclass(kind, Counter)
        else GaugeMetricFamily(name, text, labels=labels)
    )
    for values, child in children:
        if not isinstance(child, Histogram):
            family.add_metric(values, child.value)
    return family
