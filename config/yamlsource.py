"""Reads a YAML file so that every later complaint can name the line.

Only what a settings or policy file needs is read: mappings, lists, text, numbers, true, false and null. Anchors,
aliases and tags are refused, so a small file cannot grow into a large one. Numbers and booleans follow YAML 1.2:
`no`, `on` and `010` are text here, as they look.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from weighbridge.config.problems import ConfigProblems, Problem, dotted, plain
from weighbridge.config.shape import Step

MAX_BYTES = 1_048_576
"""The largest settings or policy file, in bytes (1 MiB)."""
MAX_DEPTH = 32
"""The deepest nesting of mappings and lists."""
MAX_PROBLEMS = 50
"""Faults of the YAML itself that are named at once; with so many the rest is not read."""

_NO_ANCHORS = "anchors and aliases (& and *) are not supported"

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NOT_TEXT = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]*(?:_[0-9]+)*)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
}


Place = tuple[int, int]
"""Line and column, both from 1."""


@dataclass(frozen=True, slots=True)
class YamlFile:
    """A parsed file: its mapping, and the place of every key and list item.

    Args:
        problems: what is wrong with the YAML itself; empty unless `scan_yaml` made it.
        unread: the paths whose value could not be read, so that null stands in its place.
    """

    name: str
    data: dict[str, Any]
    places: dict[tuple[Step, ...], Place]
    problems: tuple[Problem, ...] = ()
    unread: frozenset[tuple[Step, ...]] = frozenset()

    def place_of(self, path: Sequence[Step]) -> Place:
        """The place of `path`, or of the nearest part of it that stands in the file."""
        steps = tuple(path)
        while steps not in self.places:
            steps = steps[:-1]
        return self.places[steps]

    def problem(self, path: Sequence[Step], message: str) -> Problem:
        line, column = self.place_of(path)
        return Problem(self.name, line, dotted(path), message, column)


def read_yaml(path: Path) -> YamlFile:
    """Read and parse a file.

    Raises:
        ConfigProblems: it cannot be read, or `parse_yaml` refuses it.
    """
    return parse_yaml(read_bytes(path), str(path))


def read_bytes(path: Path) -> bytes:
    """The content of a regular file of at most `MAX_BYTES`; never waits on a pipe or a device.

    Raises:
        ConfigProblems: missing, a directory or otherwise no regular file, unreadable, or too large.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):  # opening a pipe would wait for somebody to write
            kind = "a folder" if stat.S_ISDIR(mode) else "no regular file"
            raise ConfigProblems([Problem(str(path), None, "", f"is {kind}")])
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigProblems([Problem(str(path), None, "", "no such file")]) from None
    except (OSError, ValueError) as exc:
        why = exc.strerror if isinstance(exc, OSError) and exc.strerror else "not a usable path"
        raise ConfigProblems([Problem(str(path), None, "", f"cannot be read: {why}")]) from None
    if len(raw) > MAX_BYTES:
        raise ConfigProblems([Problem(str(path), None, "", f"is larger than {MAX_BYTES} bytes")])
    return raw


def parse_yaml(raw: bytes, name: str) -> YamlFile:
    """Parse one document whose top is a mapping. `name` is what the problems call the file.

    Raises:
        ConfigProblems: everything that is wrong up to where reading could not go on.
    """
    file = scan_yaml(raw, name)
    if file.problems:
        raise ConfigProblems(file.problems)
    return file


def scan_yaml(raw: bytes, name: str, real: Callable[[str], Any] = float) -> YamlFile:
    """Like `parse_yaml`, but what need not end the reading (a key given twice, an anchor, a tag) is among the
    `problems` of the file, so that its other faults can be named too.

    Args:
        real: makes a number of a text with a fraction or an exponent; `Decimal` where money must stay exact.

    Raises:
        ConfigProblems: nothing can be read, or not to the end.
    """
    if len(raw) > MAX_BYTES:
        raise _refused(name, None, "", f"is larger than {MAX_BYTES} bytes")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        begun = raw.rfind(b"\n", 0, exc.start) + 1
        column = len(raw[begun : exc.start].decode("utf-8-sig")) + 1
        place = (raw.count(b"\n", 0, exc.start) + 1, column)
        raise _refused(name, place, "", "is not UTF-8 text") from None
    if (bad := _NOT_TEXT.search(text)) is not None:
        place = (text.count("\n", 0, bad.start()) + 1, bad.start() - text.rfind("\n", 0, bad.start()))
        raise _refused(name, place, "", f"holds a character that is not text (U+{ord(bad[0]):04X})")
    builder = _Builder(name, real)
    try:
        return builder.build(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as exc:
        mark: Any = exc.problem_mark or exc.context_mark
        place = (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
        what = plain(exc.problem or exc.context or "it cannot be parsed", 160)
        if _starts_with_tab(text, place[0]):
            what = "indent with spaces, not with a tab"
        raise ConfigProblems(
            [*builder.found, _problem(name, place, "", f"is not valid YAML: {what}")]
        ) from None
    except yaml.YAMLError:
        raise ConfigProblems([*builder.found, _problem(name, None, "", "is not valid YAML")]) from None


def _starts_with_tab(text: str, line: int) -> bool:
    lines = text.split("\n", line)
    return len(lines) >= line and lines[line - 1].lstrip(" ").startswith("\t")


def _problem(name: str, place: Place | None, field: str, message: str) -> Problem:
    line, column = place or (None, None)
    return Problem(name, line, field, message, column)


def _refused(name: str, place: Place | None, field: str, message: str) -> ConfigProblems:
    return ConfigProblems([_problem(name, place, field, message)])


class _Open:
    """A mapping or list whose end has not been read yet."""

    __slots__ = ("key", "keys", "path", "spare", "value")

    def __init__(self, value: dict[str, Any] | list[Any], path: tuple[Step, ...]) -> None:
        self.value = value
        self.path = path
        self.key: str | None = None
        self.keys: dict[str, int] = {}
        """The line of each key so far."""
        self.spare = False
        """The key was given before: what stands there is read and dropped."""


class _Builder:
    """Builds the data from parser events, without recursion."""

    def __init__(self, name: str, real: Callable[[str], Any]) -> None:
        self._name = name
        self._real = real
        self._places: dict[tuple[Step, ...], Place] = {}
        self._stack: list[_Open] = []
        self._top: Any = None
        self._documents = 0
        self._unread: set[tuple[Step, ...]] = set()
        self.found: list[Problem] = []
        """What was wrong so far."""

    def build(self, events: Iterator[yaml.Event]) -> YamlFile:
        for event in events:
            mark = event.start_mark
            place = (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
            if isinstance(event, yaml.DocumentStartEvent):
                self._documents += 1
                if self._documents > 1:
                    raise self._end(place, "holds more than one YAML document", whole=True)
            elif isinstance(event, yaml.AliasEvent):
                self._alias(place)
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                self._open(event, place)
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                self._stack.pop()
            elif isinstance(event, yaml.ScalarEvent):
                self._scalar(event, place)
        if not isinstance(self._top, dict):
            if self.found:
                raise ConfigProblems(self.found)
            if self._documents == 0 or self._top is None:
                raise _refused(self._name, None, "", "is empty")
            raise _refused(
                self._name, self._places[()], "", "must be a mapping (lines of `key: value`) at the top"
            )
        return YamlFile(self._name, self._top, self._places, tuple(self.found), frozenset(self._unread))

    def _alias(self, place: Place) -> None:
        if self._wants_key():
            raise self._end(place, _NO_ANCHORS)
        self._note(place, _NO_ANCHORS)
        self._unread.add(self._path())
        self._put(None, place)

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent, place: Place) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise self._end(place, f"is nested deeper than {MAX_DEPTH} levels")
        if self._wants_key():
            raise self._end(place, "a key must be plain text")
        self._look_at(event, place)
        value: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._stack.append(_Open(value, self._put(value, place)))

    def _scalar(self, event: yaml.ScalarEvent, place: Place) -> None:
        self._look_at(event, place)
        if (bad := _NOT_TEXT.search(event.value)) is not None:
            raise self._end(place, f"holds a character that is not text (U+{ord(bad[0]):04X})")
        if self._wants_key():
            self._key(event.value, place)
        else:
            unquoted = event.style in (None, "")  # the two parsers of PyYAML name the plain style differently
            self._put(self._resolve(event.value, place) if unquoted else event.value, place)

    def _look_at(self, event: yaml.NodeEvent, place: Place) -> None:
        if event.anchor is not None:
            self._note(place, _NO_ANCHORS)
        if getattr(event, "tag", None) is not None:
            self._note(place, "tags (!) are not supported")

    def _key(self, key: str, place: Place) -> None:
        here = self._stack[-1]
        path = (*here.path, key)
        if not key:
            raise self._end(place, "a key must not be empty")
        here.key, here.spare = key, key in here.keys
        if here.spare:
            self._note(place, f"duplicate key, first given on line {here.keys[key]}")
        else:
            here.keys[key] = place[0]
            self._places.setdefault(path, place)

    def _put(self, value: Any, place: Place) -> tuple[Step, ...]:
        """Hang `value` into what is open; its path."""
        if not self._stack:
            self._top = value
            self._places[()] = place
            return ()
        here = self._stack[-1]
        if isinstance(here.value, list):
            path: tuple[Step, ...] = (*here.path, len(here.value))
            here.value.append(value)
            self._places.setdefault(path, place)
            return path
        assert here.key is not None
        path = (*here.path, here.key)
        if not here.spare:
            here.value[here.key] = value
        here.key = None
        return path

    def _wants_key(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1].value, dict) and self._stack[-1].key is None

    def _resolve(self, text: str, place: Place) -> Any:
        if text in _WORDS:
            return _WORDS[text]
        number = int if _INT.fullmatch(text) else self._real if _FLOAT.fullmatch(text) else None
        if number is None:
            return text
        if len(text) > 64:
            self._note(place, "this number is too long")
            self._unread.add(self._path())
            return None
        return number(text)

    def _path(self) -> tuple[Step, ...]:
        """Of what is being read."""
        if not self._stack:
            return ()
        here = self._stack[-1]
        if isinstance(here.value, list):
            return (*here.path, len(here.value))
        return here.path if here.key is None else (*here.path, here.key)

    def _note(self, place: Place, message: str) -> None:
        self.found.append(_problem(self._name, place, dotted(self._path()), message))
        if len(self.found) >= MAX_PROBLEMS:
            raise ConfigProblems(self.found)

    def _end(self, place: Place, message: str, whole: bool = False) -> ConfigProblems:
        """The last problem there is: what follows cannot be read. `whole`: it belongs to no field."""
        field = "" if whole else dotted(self._path())
        return ConfigProblems([*self.found, _problem(self._name, place, field, message)])
