"""Reads a pydantic model as a tree: what stands at a path, which names are known there, what a field takes.

The error messages, the environment variables and the generated reference pages all come from here.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

Step = str | int


@dataclass(frozen=True, slots=True)
class Slot:
    """A place a value can stand: its bare type, whether null is taken, and the field it belongs to."""

    type: Any
    optional: bool
    field: FieldInfo | None

    @property
    def extra(self) -> dict[str, Any]:
        given = self.field.json_schema_extra if self.field is not None else None
        return dict(given) if isinstance(given, dict) else {}


def slot_of(annotation: Any, field: FieldInfo | None) -> Slot:
    """`annotation` with Annotated and `| None` taken off."""
    optional = False
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation = get_args(annotation)[0]
        elif origin in (Union, types.UnionType) and type(None) in get_args(annotation):
            optional = True
            rest = [arm for arm in get_args(annotation) if arm is not type(None)]
            if len(rest) != 1:
                raise TypeError("a field may be one type, or one type and None")
            annotation = rest[0]
        else:
            return Slot(annotation, optional, field)


def as_model(annotation: Any) -> type[BaseModel] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def literals(annotation: Any) -> tuple[str, ...]:
    """The words a Literal takes; empty for any other type."""
    return tuple(str(word) for word in get_args(annotation)) if get_origin(annotation) is Literal else ()


def inside(slot: Slot) -> Any:
    """The type of what a list or a mapping holds; None for anything else."""
    origin = get_origin(slot.type)
    if origin in (list, tuple):
        return get_args(slot.type)[0]
    return get_args(slot.type)[1] if origin is dict else None


def field_at(model: type[BaseModel], path: Sequence[Step]) -> Slot | None:
    """What stands at `path`; None when the model has no such place."""
    slot = Slot(model, False, None)
    for step in path:
        here = as_model(slot.type)
        if here is not None:
            field = here.model_fields.get(str(step))
            if field is None:
                return None
            slot = slot_of(field.annotation, field)
        else:
            held = inside(slot)
            if held is None:
                return None
            slot = slot_of(held, None)
    return slot


def names_at(model: type[BaseModel], path: Sequence[Step]) -> tuple[str, ...]:
    """The keys that are known at `path`, in the order of the schema; empty when any key may stand there."""
    slot = field_at(model, path)
    if slot is None:
        return ()
    here = as_model(slot.type)
    if here is not None:
        return tuple(here.model_fields)
    return literals(get_args(slot.type)[0]) if get_origin(slot.type) is dict else ()


def expected(slot: Slot) -> str:
    """What the field takes, to be read after "must be"."""
    said = slot.extra.get("legal")
    if isinstance(said, str):
        return said
    words = literals(slot.type)
    if words:
        return words[0] if len(words) == 1 else f"one of {', '.join(words)}"
    if slot.type is bool:
        return "true or false"
    if slot.type in (int, float):
        noun = "a whole number" if slot.type is int else "a number"
        return noun + _range(slot.field)
    if slot.type in (str, SecretStr):
        return "text"
    if slot.type is Path:
        return "a path"
    return "a list" if get_origin(slot.type) in (list, tuple) else "a mapping"


def _range(field: FieldInfo | None) -> str:
    low = high = None
    parts: list[str] = []
    for item in field.metadata if field is not None else ():
        if isinstance(item, annotated_types.Ge):
            low = item.ge
            parts.append(f"not below {item.ge}")
        elif isinstance(item, annotated_types.Gt):
            parts.append(f"above {item.gt}")
        elif isinstance(item, annotated_types.Le):
            high = item.le
            parts.append(f"not above {item.le}")
        elif isinstance(item, annotated_types.Lt):
            parts.append(f"below {item.lt}")
    if low is not None and high is not None:
        return f" between {low} and {high}"
    return "".join(f" {part}" if n == 0 else f" and {part}" for n, part in enumerate(parts))


@dataclass(frozen=True, slots=True)
class Leaf:
    """A field that holds a value, with its path. `*` stands for any key of a mapping, `[]` for a list's item."""

    path: tuple[str, ...]
    slot: Slot


def leaves(model: type[BaseModel], at: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Every field below `model`, in the order of the schema; a list or mapping of models is followed by its fields."""
    for name, field in model.model_fields.items():
        slot = slot_of(field.annotation, field)
        below = as_model(slot.type)
        path = (*at, name)
        if below is not None:
            yield from leaves(below, path)
            continue
        held = inside(slot)
        item = as_model(slot_of(held, None).type) if held is not None else None
        if item is None or get_origin(slot.type) is not dict:
            yield Leaf(path, slot)
        if item is not None:
            yield from leaves(item, (*path, "*" if get_origin(slot.type) is dict else "[]"))
