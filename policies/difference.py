"""What lies between two policies as plain data: as a patch that leads from one to the other, and as a list to read.

A patch has the shape of the policy. It holds what is to be set; null stands for what is to be left out (a rule, an
optional value). Lists are replaced whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

_NOTHING: Final[Mapping[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Change:
    """One place that differs. None stands for what is not there; a policy's content holds no nulls."""

    path: str
    """A JSON pointer (RFC 6901), such as `/tasks/code/road`."""
    before: Any
    after: Any


def merged(base: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `patch` on it, as new data."""
    made = dict(base)
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        elif isinstance(value, Mapping):
            held = made.get(key)
            made[key] = merged(held if isinstance(held, Mapping) else _NOTHING, value)
        else:
            made[key] = value
    return made


def patch_between(
    before: Mapping[str, Any], after: Mapping[str, Any], named: Mapping[str, Any] = _NOTHING
) -> dict[str, Any]:
    """The smallest patch that makes `after` of `before`.

    Args:
        named: places that the patch is to hold even where both say the same: somebody has set them on purpose.
    """
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            said = named.get(key)
            below = patch_between(old, value, said if isinstance(said, Mapping) else _NOTHING)
            if below:
                patch[key] = below
        elif key not in before or old != value or key in named:
            patch[key] = value
    return patch


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Every place that differs, in the order of `before`; what is only in `after` comes behind its neighbours."""
    return list(_differences("", before, after))


def _differences(at: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    for key in (*before, *(key for key in after if key not in before)):
        path = f"{at}/{key.replace('~', '~0').replace('/', '~1')}"
        old, new = before.get(key), after.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _differences(path, old, new)
        elif old != new:
            yield Change(path, old, new)
