"""The fields of a chat request, read from the published types of the `openai` package and from our own walker."""

from __future__ import annotations

import ast
import types
import typing
from collections.abc import Iterator
from inspect import getsource
from typing import Any

import typing_extensions
from openai.types.chat import completion_create_params as published

from weighbridge.masking import body as ours

_WRAPPERS = (typing_extensions.Required, typing_extensions.NotRequired, typing.Annotated)
_ROOTS = (published.CompletionCreateParamsNonStreaming, published.CompletionCreateParamsStreaming)


def published_paths() -> set[str]:
    """Every leaf, as `messages[].tool_calls[].id`; what holds values of any shape ends in `.*`."""
    return {path for root in _ROOTS for path in _leaves(root, "", frozenset())}


def _leaves(kind: Any, path: str, above: frozenset[Any]) -> Iterator[str]:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in _WRAPPERS:
        yield from _leaves(inner[0], path, above)
    elif isinstance(kind, typing_extensions.TypeAliasType):
        yield from _leaves(kind.__value__, path, above)
    elif origin in (typing.Union, types.UnionType):
        for one in inner:
            if one is not types.NoneType:
                yield from _leaves(one, path, above)
    elif typing_extensions.is_typeddict(kind):
        if kind in above:
            raise ValueError(f"{path} holds itself: say how deep its sites go")
        for name, field in typing.get_type_hints(kind, include_extras=True).items():
            yield from _leaves(field, f"{path}.{name}".lstrip("."), above | {kind})
    elif origin is dict:
        yield f"{path}.*"
    elif origin is not None and origin is not typing.Literal:
        yield from _leaves(inner[0], f"{path}[]", above)
    else:
        yield path


def our_fields() -> set[str]:
    """Every field that the module which builds the outward body reads or writes."""
    return {name for node in ast.walk(ast.parse(getsource(ours))) for name in _named(node)}


def _named(node: ast.AST) -> Iterator[str]:
    """Field names in `x.get("f")`, `x["f"]`, `"f" in x`, `{"f": ...}` and `for x in ("f", ...)`."""
    candidates: list[ast.expr | None] = []
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
        candidates = [*node.args[:1]]
    elif isinstance(node, ast.Subscript):
        candidates = [node.slice]
    elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In):
        candidates = [node.left]
    elif isinstance(node, ast.Dict):
        candidates = [*node.keys]
    elif isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple):
        candidates = [*node.iter.elts]
    for candidate in candidates:
        if isinstance(candidate, ast.Constant) and isinstance(candidate.value, str):
            yield candidate.value
