"""The masked body: what was found in a request, with placeholders in its place."""

from __future__ import annotations

import re
from typing import Any, Final

from weighbridge.masking.body import Plan, with_instruction
from weighbridge.masking.entities import Span
from weighbridge.masking.masked_text import mask_text
from weighbridge.masking.second_look import remains
from weighbridge.masking.vault import Mint
from weighbridge.masking.walker import Leaf, Walker, Whole, render

_IDENTIFIER: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.-]*")
_LOOSE: Final = frozenset({"PERSON", "NAME", "PLACE", "ORG"})


def tells(name: str, spans: list[Span]) -> bool:
    """Whether a key or a function's name tells something. What the name layers make of an identifier does not count:
    out of a sentence every capitalised word looks like somebody."""
    kinds = {entity for _, _, entity in spans}
    if _IDENTIFIER.fullmatch(name):
        kinds -= _LOOSE
    return bool(kinds or remains(name))


def fill_in(plan: Plan, walker: Walker, spans: list[list[Span]], mint: Mint) -> dict[str, Any]:
    """The body to be sent: the plan, with every text masked; each text once."""
    masked: dict[int, str] = {}

    def fill(node: Leaf | Whole) -> str:
        if isinstance(node, Whole):
            return mint.placeholder(node.entity, node.text) if node.text else ""
        if node.at not in masked:
            masked[node.at] = mask_text(walker.texts[node.at], spans[node.at], mint)
        return masked[node.at]

    outward: dict[str, Any] = render(plan.tree, fill)
    if mint.counts():
        outward["messages"] = with_instruction(outward["messages"])
    return outward
