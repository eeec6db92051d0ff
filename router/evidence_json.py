"""Whether an answer is JSON, and fits the caller's schema, in bounded time whatever the schema is.

Schema, patterns and answer are a stranger's: nothing is fetched, and work without end is given up.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from decimal import Decimal
from typing import Any, Final

import msgspec
import regex
from jsonschema import (  # type: ignore[import-untyped]
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
    ValidationError,
)
from jsonschema.validators import extend  # type: ignore[import-untyped]
from referencing import Registry

from weighbridge.config.offload import is_small

_NOTHING_FETCHED: Final[Registry[Any]] = Registry()
"""The library's own default asks the network for addresses it does not know."""


_LONGEST_PATTERN: Final = 1_000
_MOST_GROUPS: Final = 6
"""A longer pattern, or one with more groups, counts as satisfied: reading it has no time limit, and each group within
another makes that three times as long."""


class NotJson(Exception):
    """The text is no JSON."""


class TooMuch(Exception):
    """The question takes more work than was allowed."""


class Allowance:
    """What looking at one answer may take.

    Args:
        seconds: from now on.
        nodes: values that a schema, and what is held against it, may hold: some steps take a time for each of them.
    """

    __slots__ = ("_nodes", "_until")

    def __init__(self, seconds: float, nodes: int = 10_000) -> None:
        self._until = time.perf_counter() + seconds
        self._nodes = nodes

    def left(self) -> float:
        """The seconds that are left.

        Raises:
            TooMuch: none are.
        """
        left_s = self._until - time.perf_counter()
        if left_s <= 0:
            raise TooMuch
        return left_s

    def covers(self, value: Any) -> None:
        """Raises: TooMuch: the value is too large."""
        if not is_small(value, nodes=self._nodes, chars=16 * self._nodes):
            raise TooMuch


_allowance: ContextVar[Allowance] = ContextVar("allowance")


def read_json(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        NotJson: it is none.
        TooMuch: it is nested too deeply to tell.
    """
    try:
        return msgspec.json.decode(text)
    except ValueError:
        pass
    except RecursionError:
        raise TooMuch from None
    try:
        # Half a pair of surrogates, and numbers beyond all measure: odd, but JSON.
        return json.loads(text, parse_constant=_no_constant)
    except ValueError:
        raise NotJson from None
    except RecursionError:
        raise TooMuch from None


def fits(value: Any, schema: Any, allowance: Allowance) -> bool:
    """Whether a JSON value satisfies a schema; a schema that cannot be followed is satisfied by everything.

    Raises:
        TooMuch: the allowance is used up, or is not for a schema or a value so large.
    """
    if not isinstance(schema, dict):
        return True
    allowance.left()
    allowance.covers(schema)
    allowance.covers(value)
    token = _allowance.set(allowance)
    try:
        return bool(_dialect(schema)(schema, registry=_NOTHING_FETCHED).is_valid(value))
    except TooMuch:
        raise
    except TimeoutError:
        raise TooMuch from None
    except Exception:
        # A schema that is none, a reference that leads nowhere or round in circles, a pattern of another kind: the
        # library raises whatever its own code runs into.
        return True
    finally:
        _allowance.reset(token)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _matches(pattern: str, text: str, otherwise: bool) -> bool:
    if len(pattern) > _LONGEST_PATTERN or pattern.count("(") > _MOST_GROUPS:
        return otherwise
    return regex.search(pattern, text, timeout=_allowance.get().left()) is not None


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterable[ValidationError]:
    if isinstance(instance, str) and not _matches(pattern, instance, True):
        yield ValidationError("pattern")


def _pattern_properties(
    validator: Any, patterns: Mapping[str, Any], instance: Any, schema: Any
) -> Iterable[ValidationError]:
    if isinstance(instance, dict):
        for pattern, below in patterns.items():
            for name, value in instance.items():
                if _matches(pattern, name, False):
                    yield from validator.descend(value, below)


def _additional_properties(
    validator: Any, below: Any, instance: Any, schema: Any
) -> Iterable[ValidationError]:
    if isinstance(instance, dict):
        named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
        for name, value in instance.items():
            if name not in named and not any(_matches(pattern, name, True) for pattern in patterns):
                yield from validator.descend(value, below)


def _unique(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterable[ValidationError]:
    # The library compares every item with every other.
    if wanted and isinstance(instance, list):
        seen = {json.dumps(_plain(item), sort_keys=True) for item in instance}
        if len(seen) < len(instance):
            yield ValidationError("uniqueItems")


def _multiple_of(validator: Any, step: Any, instance: Any, schema: Any) -> Iterable[ValidationError]:
    # As they are written: in binary 19.99 is no multiple of 0.01.
    if validator.is_type(instance, "number"):
        with suppress(ArithmeticError):
            if Decimal(repr(instance)) % Decimal(repr(step)):
                yield ValidationError("multipleOf")


def _plain(value: Any) -> Any:
    """A value whose equals are written alike: to JSON Schema 1.0 is 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value


def _not_judged(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterable[ValidationError]:
    return ()


_OURS: Final[dict[str, Callable[..., Iterable[ValidationError]]]] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique,
    "multipleOf": _multiple_of,
    # They run patterns without a limit, and go through the schema once more for every property.
    "unevaluatedProperties": _not_judged,
    "unevaluatedItems": _not_judged,
}
"""In place of the library's keywords that a pattern or a long list can keep busy for ever, or that find fault with
what nobody else would."""


def _counted(name: str, keyword: Callable[..., Any]) -> Callable[..., Any]:
    exclusive = name in ("exclusiveMaximum", "exclusiveMinimum")

    def check(validator: Any, wanted: Any, instance: Any, schema: Any) -> Any:
        _allowance.get().left()
        # Of OpenAPI's dialect, and of old drafts: what stands beside it still holds.
        if (instance is None and schema.get("nullable") is True) or (exclusive and isinstance(wanted, bool)):
            return ()
        return keyword(validator, wanted, instance, schema)

    return check


def _bounded(dialect: Any) -> Any:
    keywords = {
        **dialect.VALIDATORS,
        **{name: own for name, own in _OURS.items() if name in dialect.VALIDATORS},
    }
    return extend(dialect, {name: _counted(name, keyword) for name, keyword in keywords.items()})


_DRAFT_7, _DRAFT_2019, _DRAFT_2020 = map(
    _bounded, (Draft7Validator, Draft201909Validator, Draft202012Validator)
)


def _dialect(schema: Mapping[str, Any]) -> Any:
    said = schema.get("$schema")
    if isinstance(said, str) and "draft-0" in said:
        return _DRAFT_7
    return _DRAFT_2019 if isinstance(said, str) and "2019-09" in said else _DRAFT_2020
