"""Evidence against an answer: what can be seen of it that says a more capable model should be asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

from weighbridge.config.evidence import Evidence
from weighbridge.router.evidence_answer import Asked, Call, Said
from weighbridge.router.evidence_json import Allowance, NotJson, fits, read_json
from weighbridge.router.evidence_text import loops, names_a_language, other_language, refuses

_UNPARSED: Final = ("<tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<function=", "<|tool_call")
"""How models begin a tool call. An answer that begins so has one that its server could not read."""


@dataclass(frozen=True, slots=True)
class Look:
    """What is looked at.

    Args:
        wanted: the kinds of evidence that count.
        least_logprob: the bound of `low_logprob`; None for none.
        whole: the answer has ended; else it is the beginning of one.
    """

    wanted: Collection[Evidence]
    least_logprob: float | None = None
    whole: bool = True


def find(
    look: Look, asked: Asked, answer: Sequence[Said], mean_logprob: float | None, allowance: Allowance
) -> Evidence | None:
    """The first evidence that all choices of an answer show: who asked for several has a good one otherwise.

    Args:
        mean_logprob: of the answer's tokens, the natural one; None where nobody knows.

    Raises:
        TooMuch: the allowance is used up.
    """
    if not answer:
        return None
    for evidence in _ORDER:
        if evidence in look.wanted and all(
            _SHOWS[evidence](look, asked, said, allowance) for said in answer if allowance.left()
        ):
            return evidence
    if "low_logprob" in look.wanted and mean_logprob is not None and look.least_logprob is not None:
        return "low_logprob" if mean_logprob < look.least_logprob else None
    return None


def _empty(look: Look, asked: Asked, said: Said, allowance: Allowance) -> bool:
    if said.text.strip() or said.calls or said.refusal or said.other:
        return False
    return not asked.ended(said) if look.whole else not said.thought


def _invalid_tool_call(look: Look, asked: Asked, said: Said, allowance: Allowance) -> bool:
    if not look.whole or not asked.may_call or said.refusal or said.other:
        return False
    if not said.calls:
        missing = asked.must_call or said.text.lstrip().startswith(_UNPARSED)
        return missing and not asked.ended(said)
    return any(
        call.type in (None, "function") and not _call_fits(asked, said, call, allowance)
        for call in said.calls
    )


def _call_fits(asked: Asked, said: Said, call: Call, allowance: Allowance) -> bool:
    name, arguments = call.name, call.arguments.strip()
    if not isinstance(name, str) or name not in asked.tools or asked.named_tool not in (None, name):
        return False
    if not arguments and asked.ended(said):
        return True
    try:
        # Some servers leave out what holds nothing.
        given = read_json(arguments) if arguments else {}
    except NotJson:
        return asked.ended(said)
    return isinstance(given, dict) and fits(given, asked.tools[name], allowance)


def _invalid_json(look: Look, asked: Asked, said: Said, allowance: Allowance) -> bool:
    if not look.whole or not asked.wants_json or said.calls or said.refusal or said.other:
        return False
    try:
        value = read_json(said.text)
    except NotJson:
        return not asked.ended(said)
    if not isinstance(value, dict | list) and asked.ended(said):
        # The beginning of a longer number.
        return False
    if asked.schema is None:
        return not isinstance(value, dict | list)
    return not fits(value, asked.schema, allowance)


def _refusal(look: Look, asked: Asked, said: Said, allowance: Allowance) -> bool:
    if said.calls or asked.task == "translation":
        return False
    return said.refusal or refuses(said.text, asked.question)


def _wrong_language(look: Look, asked: Asked, said: Said, allowance: Allowance) -> bool:
    if said.calls or asked.wants_json or asked.task in ("translation", "code"):
        return False
    return other_language(asked.question, said.text) and not names_a_language(asked.texts())


def _repetition(look: Look, asked: Asked, said: Said, allowance: Allowance) -> bool:
    # In JSON the same value may stand many times; a loop there ends as JSON that is not whole.
    return not asked.wants_json and loops(said.text, asked.question, said.cut or not look.whole)


def _length(look: Look, asked: Asked, said: Said, allowance: Allowance) -> bool:
    return said.cut and (not asked.limited or asked.wants_json or bool(said.calls))


_SHOWS: Final[dict[Evidence, Callable[[Look, Asked, Said, Allowance], bool]]] = {
    "empty": _empty,
    "invalid_tool_call": _invalid_tool_call,
    "invalid_json": _invalid_json,
    "refusal": _refusal,
    "wrong_language": _wrong_language,
    "repetition": _repetition,
    "length": _length,
}
_ORDER: Final = tuple(_SHOWS)
