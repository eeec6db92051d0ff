"""Whether a request may leave, from what was found in it and the policy's rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from weighbridge.masking.entities import CREDENTIAL, ENCODED, LANGUAGE, MIXED, PLACEHOLDER_SHAPE, Span
from weighbridge.masking.errors import Reason
from weighbridge.masking.people import people
from weighbridge.masking.prose import languages_of
from weighbridge.masking.rules import Rules

_WHY: Mapping[str, Reason] = MappingProxyType(
    {
        PLACEHOLDER_SHAPE: "placeholder_shaped_input",
        CREDENTIAL: "credentials",
        ENCODED: "encoded",
        MIXED: "mixed_script",
        LANGUAGE: "language",
    }
)


def judge(
    texts: Sequence[str], found: Sequence[Sequence[Span]], rules: Rules, names: frozenset[str] | None
) -> Reason | None:
    """Why the texts must stay; None when they may leave masked.

    Args:
        texts, found: every text of a request and the merged spans in it.
        rules: the policy's.
        names: languages in whose prose names are found; None asks nothing about that.
    """
    kinds = {entity for spans in found for _, _, entity in spans}
    for kind, why in _WHY.items():
        if kind in kinds:
            return why
    if kinds & rules.refused:
        return "refused_type"
    values = {
        (entity, text[start:end])
        for text, spans in zip(texts, found, strict=True)
        for start, end, entity in spans
    }
    if people(values) > rules.max_people:
        return "many_people"
    if rules.free_text == "mask" and names is None:
        return None
    spoken = frozenset[str]().union(*map(languages_of, texts))
    if rules.free_text == "refuse":
        return "free_text" if spoken else None
    return None if names is None or spoken <= names else "no_name_detector"
