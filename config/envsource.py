"""Reads the WEIGHBRIDGE_* variables into a tree; a variable that names no setting is an error, not a shrug."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_origin

from pydantic import BaseModel

from weighbridge.config.problems import Problem, dotted
from weighbridge.config.shape import Slot, Step, as_model, field_at, inside, leaves, names_at

PREFIX = "WEIGHBRIDGE_"
DELIMITER = "__"
CONFIG_VARIABLE = "WEIGHBRIDGE_CONFIG"
"""Path of the settings file, where no --config is given."""
ENVIRONMENT = "environment"
"""What the environment is called in place of a file."""

_SERVICE = "_SERVICE_HOST"
_SERVICE_REST = re.compile(
    r"_(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)"
)


@dataclass(slots=True)
class EnvTree:
    """The settings found in the environment, and the variable each came from."""

    tree: dict[str, Any] = field(default_factory=dict)
    names: dict[tuple[Step, ...], str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def problem(self, path: Sequence[Step], message: str) -> Problem:
        """A problem that names the variable; what lies inside a JSON value is named behind it."""
        for length in range(len(path), 0, -1):
            name = self.names.get(tuple(path[:length]))
            if name is not None:
                below = dotted(path[length:])
                return Problem(ENVIRONMENT, None, name, f"{below}: {message}" if below else message)
        return Problem(ENVIRONMENT, None, dotted(path), message)


def variable(path: Sequence[str]) -> str:
    """The variable of a setting: `("tiers", "local-8b", "seed")` is `WEIGHBRIDGE_TIERS__LOCAL_8B__SEED`."""
    return PREFIX + DELIMITER.join(_word(step) for step in path)


def _word(step: str) -> str:
    return step.upper().replace("-", "_")


def read_env(model: type[BaseModel], env: Mapping[str, str]) -> EnvTree:
    """Collect the settings in `env`. An empty variable counts as not set; `null` takes an optional value away.

    Sections, lists and mappings are given as JSON.
    """
    found = EnvTree()
    given = [name for name in env if name.upper().startswith(PREFIX) and name != CONFIG_VARIABLE]
    # Shorter first, so that one variable can refine what another gave as JSON.
    for name in sorted(given, key=lambda name: (name.count(DELIMITER), name)):
        if not env[name] or _is_service_link(name, env):
            continue
        path = _path(model, name)
        slot = None if path is None else field_at(model, path)
        if path is None or slot is None:
            found.problems.append(
                Problem(ENVIRONMENT, None, name, "no setting has this name" + _guess(model, name))
            )
            continue
        try:
            value = _decode(slot, env[name])
        except ValueError as exc:
            found.problems.append(Problem(ENVIRONMENT, None, name, str(exc)))
            continue
        found.names[path] = name
        _put(found.tree, path, value)
    return found


def _is_service_link(name: str, env: Mapping[str, str]) -> bool:
    """Kubernetes puts WEIGHBRIDGE_SERVICE_HOST, _PORT_8080_TCP and more into pods beside a Service of our name."""
    return any(
        other.endswith(_SERVICE)
        and name.startswith(stem := other.removesuffix(_SERVICE))
        and _SERVICE_REST.fullmatch(name.removeprefix(stem)) is not None
        for other in env
        if other.startswith(PREFIX.rstrip("_"))
    )


def _path(model: type[BaseModel], name: str) -> tuple[str, ...] | None:
    path: tuple[str, ...] = ()
    for part in name.removeprefix(PREFIX).split(DELIMITER):
        known = {_word(key): key for key in names_at(model, path)}
        if part not in known:
            return None
        path = (*path, known[part])
    return path


def reachable(model: type[BaseModel], path: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The settings with variables of their own that a leaf's path stands for. Where any key may stand, no variable can
    name one: the whole mapping has a variable."""
    if "*" not in path:
        return [path]
    at = path.index("*")
    keys = names_at(model, path[:at])
    return [(*path[:at], key, *path[at + 1 :]) for key in keys] or [path[:at]]


def _guess(model: type[BaseModel], name: str) -> str:
    known = []
    for leaf in leaves(model):
        if "[]" not in leaf.path:
            known += [variable(path) for path in reachable(model, leaf.path)]
    stems = [word.removeprefix(PREFIX) for word in known]
    close = difflib.get_close_matches(name.upper().removeprefix(PREFIX), stems, n=1, cutoff=0.7)
    return f"; did you mean {PREFIX}{close[0]}?" if close else ""


def _decode(slot: Slot, text: str) -> Any:
    if slot.optional and text == "null":
        return None
    if as_model(slot.type) is None and inside(slot) is None:
        return text
    wanted = list if get_origin(slot.type) in (list, tuple) else dict
    noun = "list" if wanted is list else "object"
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise ValueError(f"must be a JSON {noun}") from None
    if value is None and wanted is dict:
        return None
    if not isinstance(value, wanted):
        raise ValueError(f"must be a JSON {noun}")
    return value


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _put(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for step in path[:-1]:
        below = tree.get(step)
        if not isinstance(below, dict):
            below = tree[step] = {}
        tree = below
    tree[path[-1]] = value
