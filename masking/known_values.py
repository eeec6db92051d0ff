"""Tenants' own lists of values, masked wherever they stand: the only sure way to find a name."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from weighbridge.config.clock import Clock
from weighbridge.masking.entities import TYPES, Span, merge
from weighbridge.masking.errors import MaskingRefused
from weighbridge.masking.folding import Folded, fold, fold_text
from weighbridge.masking.lists import BadList, lines_of, read_bytes
from weighbridge.masking.squeezed import HANGUL, WESTERN, gaps_of, lower, one_term, places_of, squeeze
from weighbridge.masking.term_index import TermIndex
from weighbridge.masking.views import MAX_ROUNDS, Unescaped, unescape

log = logging.getLogger(__name__)

DEFAULT = "default"
"""The list that counts for every tenant."""
DEFAULT_TYPE = "KNOWN"
MAX_VALUES = 1_000_000
MAX_VALUE = 200
"""Characters of one value."""
_LEAST = 2
_LEAST_HANGUL, _LEAST_OTHER = 2, 6
"""Hangul and other characters that a value must have to be looked for written apart."""
CHECK_S: Final = 1.0
"""Seconds between two looks at a file."""


class KnownValues:
    """Values of one list. Safe to use from several threads.

    A value counts in any case and spelling, with its particles glued behind, and behind percent signs and backslashes.
    In Latin letters and digits it must stand for itself (`Ann` is not in `annual`); two syllables of Hangul must begin
    a word. Of two syllables or six other characters, it is also found written apart or broken over lines.

    Args:
        values: entity type and value of each.
    """

    def __init__(self, values: Iterable[tuple[str, str]] = ()) -> None:
        self._plain = TermIndex[str]()
        self._apart = TermIndex[tuple[str, frozenset[int]]]()
        for entity, value in values:
            term = lower(fold_text(value))
            self._plain.add(term, entity)
            close = squeeze(term)
            syllables = len(HANGUL.findall(close))
            if syllables >= _LEAST_HANGUL or len(close) - syllables >= _LEAST_OTHER:
                held = self._apart.get(close)
                self._apart.add(close, (entity, gaps_of(term) | (held[1] if held else frozenset())))
        self.count = len(self._plain)
        """Different values."""

    @classmethod
    def load(cls, path: Path) -> KnownValues:
        """Read a file: UTF-8, one value a line, before it perhaps an entity type and a tab; `#` begins a comment.

        Raises:
            BadList: it cannot be used. Names file and line, never the value.
        """
        return cls.parse(path, read_bytes(path))

    @classmethod
    def parse(cls, path: Path, data: bytes) -> KnownValues:
        """The same for content that has been read already."""
        return cls(_values(path, data))

    def find(self, text: str) -> list[Span]:
        """Merged spans, in code points of `text` as given."""
        if not self.count:
            return []
        folded = fold(text)
        way: list[Folded | Unescaped] = [folded]
        spans = [_back(way, hit) for hit in self._in_reading(folded.text)]
        for _ in range(MAX_ROUNDS):
            further = unescape(way[-1].text)
            if further is None:
                break
            way.append(further)
            for first, last in further.windows():
                piece = fold(further.text[first:last])
                for start, end, entity in self._in_reading(piece.text):
                    start, end = piece.original_span(start, end)
                    spans.append(_back(way, (first + start, first + end, entity)))
        return merge(spans)

    def _in_reading(self, text: str) -> Iterator[Span]:
        low = lower(text)
        for start, end, entity in self._plain.find(low):
            if _stands(low, start, end):
                yield start, end, entity
        places: list[int] | None = None
        for start, end, (entity, gaps) in self._apart.find(squeeze(low)):
            if places is None:
                places = places_of(low)
            part = places[start:end]
            if one_term(low, part, own_gaps=gaps) and _stands(low, part[0], part[-1] + 1):
                yield part[0], part[-1] + 1, entity


def _stands(text: str, start: int, end: int) -> bool:
    """Whether a found value is no piece of a longer word."""
    before = text[start - 1] if start else ""
    after = text[end] if end < len(text) else ""
    if WESTERN.match(text[start]) and WESTERN.match(before):
        return False
    if WESTERN.match(text[end - 1]) and WESTERN.match(after):
        return False
    return not (end - start <= _LEAST and HANGUL.match(text[start]) and HANGUL.match(before))


def _back(way: Sequence[Folded | Unescaped], span: Span) -> Span:
    start, end, entity = span
    for reading in reversed(way):
        start, end = reading.original_span(start, end)
    return start, end, entity


def _values(path: Path, data: bytes) -> Iterator[tuple[str, str]]:
    for count, (number, line) in enumerate(lines_of(path, data)):
        if count >= MAX_VALUES:
            raise BadList(path, f"is one of more than {MAX_VALUES} values", number)
        entity, tab, value = line.partition("\t")
        if not tab:
            entity, value = DEFAULT_TYPE, line
        value = value.strip()
        if entity not in TYPES:
            raise BadList(path, "has an unknown entity type before the tab", number)
        if len(value) > MAX_VALUE:
            raise BadList(path, f"has a value longer than {MAX_VALUE} characters", number)
        if len(fold_text(value)) < _LEAST or not squeeze(fold_text(value)):
            raise BadList(path, f"has a value shorter than {_LEAST} characters", number)
        yield entity, value


@dataclass(slots=True)
class _List:
    path: Path
    checked: float
    reading: bool = False
    stamp: tuple[int, int, int] | None = None
    digest: bytes = b""
    values: KnownValues | None = None
    problem: BadList | None = None


def _in_thread(job: Callable[[], None]) -> None:
    threading.Thread(target=job, name="known values", daemon=True).start()


class KnownLists:
    """Finds the values of a tenant's list and of the default one, and follows changes of the files.

    All files are read when this is made. After that a file is looked at once a second at most, by `look` or when its
    values are asked for, and read again, beside what goes on, when its time, size or inode changed. From the moment it
    turns out that a file cannot be used until it is mended, `find` refuses for every tenant it counts for: the old list
    could miss what was added.

    Args:
        files: list file by tenant; `default` is for every tenant.
        clock: as everywhere.
        start: runs a reading; a list of 50,000 values takes a second.

    Safe to use from several threads.
    """

    def __init__(
        self,
        files: Mapping[str, Path],
        clock: Clock,
        *,
        start: Callable[[Callable[[], None]], None] = _in_thread,
    ) -> None:
        self._clock = clock
        self._start = start
        self._lock = threading.Lock()
        now = clock.monotonic()
        self._lists = {tenant: _List(Path(path), now) for tenant, path in files.items()}
        for held in self._lists.values():
            self._read(held)

    def find(self, tenant: str, texts: Sequence[str]) -> list[list[Span]]:
        """Merged spans in each text, in code points of the text as given.

        Raises:
            MaskingRefused: one of the tenant's lists cannot be used (`known_values`).
        """
        lists = [self._current(name) for name in dict.fromkeys((DEFAULT, tenant)) if name in self._lists]
        if not lists:
            return [[] for _ in texts]
        return [merge(span for values in lists for span in values.find(text)) for text in texts]

    def problems(self) -> dict[str, str]:
        """By tenant, why its list cannot be used; fit for a log."""
        with self._lock:
            return {tenant: str(held.problem) for tenant, held in self._lists.items() if held.problem}

    def look(self) -> None:
        """See which files have changed. Asked for each second, so that the first request after a change knows of it."""
        for held in self._lists.values():
            self._follow(held)

    def edition(self, tenant: str) -> tuple[bytes | None, ...]:
        """What `find` depends on at this moment: differs after a change. None stands for a list that cannot be used."""
        with self._lock:
            lists = [self._lists[name] for name in (DEFAULT, tenant) if name in self._lists]
            return tuple(None if held.problem else held.digest for held in lists)

    def _current(self, tenant: str) -> KnownValues:
        held = self._lists[tenant]
        self._follow(held)
        with self._lock:
            if held.problem is not None or held.values is None:
                raise MaskingRefused("known_values")
            return held.values

    def _follow(self, held: _List) -> None:
        now = self._clock.monotonic()
        with self._lock:
            due = not held.reading and now - held.checked >= CHECK_S
            if due:
                held.checked = now
        if due and (held.problem is not None or _stamp(held.path) != held.stamp):
            with self._lock:
                held.reading = True
            try:
                self._start(lambda: self._read(held))
            except BaseException:
                held.reading = False
                raise

    def _read(self, held: _List) -> None:
        values, problem = held.values, None
        stamp, digest = held.stamp, held.digest
        try:
            stamp = _stamp(held.path)
            data = read_bytes(held.path)
            digest = hashlib.sha256(data).digest()
            if values is None or held.problem is not None or digest != held.digest:
                values = KnownValues.parse(held.path, data)
        except BadList as exc:
            problem = exc.with_traceback(None)
        except Exception as exc:
            problem = BadList(held.path, f"cannot be used ({type(exc).__name__})")
        with self._lock:
            before, held.problem = held.problem, problem
            held.reading = False
            if problem is None:
                held.values, held.stamp, held.digest = values, stamp, digest
        if problem is not None and str(before) != str(problem):
            log.error("known values: %s; nothing it counts for leaves", problem)
        elif problem is None and before is not None:
            log.info("known values: %s can be used again", held.path)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes with the file; None when there is none."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
