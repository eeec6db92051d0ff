"""What is wrong with a settings or policy file, one line a problem, in words a platform team can act on."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails, PydanticCustomError

from weighbridge.config.errors import ConfigError
from weighbridge.config.shape import Step, expected, field_at, names_at

_SHOWN = 120


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. `line` and `column` count from 1; None where there is no such place to name.

    `file` is empty where none is to blame.
    """

    file: str
    line: int | None
    field: str
    message: str
    column: int | None = None

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return ": ".join(plain(part) for part in (where, self.field, self.message) if part)


class ConfigProblems(ConfigError):
    """Everything that is wrong with one load; `str()` is one line a problem."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def plain(text: str, limit: int | None = None) -> str:
    """`text` on one line: what cannot be printed is escaped, what is longer than `limit` is cut."""
    flat = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return flat if limit is None or len(flat) <= limit else f"{flat[:limit]}..."


def dotted(path: Sequence[Step]) -> str:
    """`("auth", "keys", 0, "id")` as `auth.keys[0].id`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + plain(step, _SHOWN)
    return text


def wrong(field: str | tuple[Step, ...], message: str) -> PydanticCustomError:
    """For a validator that looks at several fields: the problem belongs to `field`.

    Args:
        field: path below the model, as a tuple or dotted; a dotted part of digits is a list's index. Empty: the
            model itself.
    """
    return wrong_all([(field, message)])


def wrong_all(problems: Sequence[tuple[str | tuple[Step, ...], str]]) -> PydanticCustomError:
    """The same for several problems that one validator has found; see `wrong` for the fields."""
    found = [(_steps(field), message) for field, message in problems]
    return PydanticCustomError("wrong", "{message}", {"message": found[0][1], "problems": found})


def _steps(field: str | tuple[Step, ...]) -> tuple[Step, ...]:
    if isinstance(field, tuple):
        return field
    return tuple(int(part) if part.isdigit() else part for part in field.split(".")) if field else ()


def explain(model: type[BaseModel], errors: Sequence[ErrorDetails]) -> list[tuple[tuple[Step, ...], str]]:
    """Pydantic's errors as (path, our sentence). No value of the input is repeated, because it may be secret."""
    found: list[tuple[tuple[Step, ...], str]] = []
    for error in errors:
        if error["type"] == "wrong":
            at = tuple(step for step in error["loc"] if step != "[key]")
            found += [((*at, *field), message) for field, message in error["ctx"]["problems"]]
        else:
            found.append(_explain(model, error))
    return found


def _explain(model: type[BaseModel], error: ErrorDetails) -> tuple[tuple[Step, ...], str]:
    path = tuple(step for step in error["loc"] if step != "[key]")
    context: Mapping[str, Any] = error.get("ctx", {})
    kind = error["type"]
    if kind == "value_error":
        return path, str(context["error"])
    if kind == "extra_forbidden":
        return path, "unknown key" + _guess(str(path[-1]), names_at(model, path[:-1]))
    if error["loc"] and error["loc"][-1] == "[key]":
        return path, _key(model, path)
    found = field_at(model, path)
    words = "something else" if found is None else expected(found)
    if kind == "missing":
        return path, f"is missing: must be {words}"
    return path, f"must be {words}{_quotes(kind, error['input'])}"


def _key(model: type[BaseModel], path: tuple[Step, ...]) -> str:
    known = names_at(model, path[:-1])
    if known:
        return f"unknown name: must be one of {', '.join(known)}"
    holder = field_at(model, path[:-1])
    legal = None if holder is None else holder.extra.get("keys")
    return f"this name must be {legal}" if isinstance(legal, str) else "this name is not legal"


def _guess(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; known here: {', '.join(known)}" if known else ""


def _quotes(kind: str, given: object) -> str:
    if kind in ("int_type", "float_type") and isinstance(given, str):
        return ", not text"
    return ": put it in quotes" if kind == "string_type" and isinstance(given, int | float) else ""
