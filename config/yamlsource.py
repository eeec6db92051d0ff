"""Reads a YAML file so that every later complaint can name the line.

Only what a settings or policy file needs is read: mappings, lists, text, numbers, true, false and null. Anchors,
aliases and tags are refused, so a small file cannot grow into a large one. Numbers and booleans follow YAML 1.2:
`no`, `on` and `010` are text here, as they look.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Sequence
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


@dataclass(frozen=True, slots=True)
class YamlFile:
    """A parsed file: its mapping, and the line of every key and list item."""

    name: str
    data: dict[str, Any]
    lines: dict[tuple[Step, ...], int]

    def line_of(self, path: Sequence[Step]) -> int:
        """The line of `path`, or of the nearest part of it that stands in the file."""
        steps = tuple(path)
        while steps not in self.lines:
            steps = steps[:-1]
        return self.lines[steps]

    def problem(self, path: Sequence[Step], message: str) -> Problem:
        return Problem(self.name, self.line_of(path), dotted(path), message)


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
        ConfigProblems: with exactly one problem, the first that was met.
    """
    if len(raw) > MAX_BYTES:
        raise _refused(name, None, "", f"is larger than {MAX_BYTES} bytes")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise _refused(name, raw.count(b"\n", 0, exc.start) + 1, "", "is not UTF-8 text") from None
    if (bad := _NOT_TEXT.search(text)) is not None:
        line = text.count("\n", 0, bad.start()) + 1
        raise _refused(name, line, "", f"holds a character that is not text (U+{ord(bad[0]):04X})")
    try:
        return _Builder(name).build(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as exc:
        mark: Any = exc.problem_mark or exc.context_mark
        line = 1 if mark is None else mark.line + 1
        what = plain(exc.problem or exc.context or "it cannot be parsed", 160)
        if _starts_with_tab(text, line):
            what = "indent with spaces, not with a tab"
        raise _refused(name, line, "", f"is not valid YAML: {what}") from None
    except yaml.YAMLError:
        raise _refused(name, None, "", "is not valid YAML") from None


def _starts_with_tab(text: str, line: int) -> bool:
    lines = text.split("\n", line)
    return len(lines) >= line and lines[line - 1].lstrip(" ").startswith("\t")


def _refused(name: str, line: int | None, field: str, message: str) -> ConfigProblems:
    return ConfigProblems([Problem(name, line, field, message)])


class _Open:
    """A mapping or list whose end has not been read yet."""

    __slots__ = ("key", "path", "value")

    def __init__(self, value: dict[str, Any] | list[Any], path: tuple[Step, ...]) -> None:
        self.value = value
        self.path = path
        self.key: str | None = None


class _Builder:
    """Builds the data from parser events, without recursion."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lines: dict[tuple[Step, ...], int] = {}
        self._stack: list[_Open] = []
        self._top: Any = None
        self._documents = 0

    def build(self, events: Iterator[yaml.Event]) -> YamlFile:
        for event in events:
            line = 1 if event.start_mark is None else event.start_mark.line + 1
            if isinstance(event, yaml.DocumentStartEvent):
                self._documents += 1
                if self._documents > 1:
                    raise _refused(self._name, line, "", "holds more than one YAML document")
            elif isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
                raise self._fail(line, "anchors and aliases (& and *) are not supported")
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                self._open(event, line)
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                self._stack.pop()
            elif isinstance(event, yaml.ScalarEvent):
                self._scalar(event, line)
        if self._documents == 0 or self._top is None:
            raise _refused(self._name, None, "", "is empty")
        if not isinstance(self._top, dict):
            raise _refused(
                self._name, self._lines[()], "", "must be a mapping (lines of `key: value`) at the top"
            )
        return YamlFile(self._name, self._top, self._lines)

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent, line: int) -> None:
        if len(self._stack) >= MAX_DEPTH:
            raise self._fail(line, f"is nested deeper than {MAX_DEPTH} levels")
        if self._wants_key():
            raise self._fail(line, "a key must be plain text")
        if event.tag is not None:
            raise self._fail(line, "tags (!) are not supported")
        value: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        self._stack.append(_Open(value, self._put(value, line)))

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        if event.tag is not None:
            raise self._fail(line, "tags (!) are not supported")
        if (bad := _NOT_TEXT.search(event.value)) is not None:
            raise self._fail(line, f"holds a character that is not text (U+{ord(bad[0]):04X})")
        if self._wants_key():
            self._key(event.value, line)
        else:
            unquoted = event.style in (None, "")  # the two parsers of PyYAML name the plain style differently
            self._put(self._resolve(event.value, line) if unquoted else event.value, line)

    def _key(self, key: str, line: int) -> None:
        here = self._stack[-1]
        path = (*here.path, key)
        if not key:
            raise self._fail(line, "a key must not be empty")
        if path in self._lines:
            raise _refused(
                self._name, line, dotted(path), f"duplicate key, first given on line {self._lines[path]}"
            )
        here.key = key
        self._lines[path] = line

    def _put(self, value: Any, line: int) -> tuple[Step, ...]:
        """Hang `value` into what is open; its path."""
        if not self._stack:
            self._top = value
            self._lines[()] = line
            return ()
        here = self._stack[-1]
        if isinstance(here.value, list):
            path: tuple[Step, ...] = (*here.path, len(here.value))
            here.value.append(value)
            self._lines[path] = line
            return path
        assert here.key is not None
        path = (*here.path, here.key)
        here.value[here.key] = value
        here.key = None
        return path

    def _wants_key(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1].value, dict) and self._stack[-1].key is None

    def _resolve(self, text: str, line: int) -> Any:
        if text in _WORDS:
            return _WORDS[text]
        number = int if _INT.fullmatch(text) else float if _FLOAT.fullmatch(text) else None
        if number is None:
            return text
        if len(text) > 64:
            raise self._fail(line, "this number is too long")
        return number(text)

    def _fail(self, line: int, message: str) -> ConfigProblems:
        if not self._stack:
            return _refused(self._name, line, "", message)
        here = self._stack[-1]
        path = here.path if here.key is None else (*here.path, here.key)
        return _refused(self._name, line, dotted(path), message)
