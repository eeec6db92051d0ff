"""W3C trace context: what a caller's `traceparent` says, and how ours is written (https://www.w3.org/TR/trace-context)."""

from __future__ import annotations

import re
from typing import Final

import msgspec

_PARENT: Final = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_ZERO_TRACE: Final = b"0" * 32
_ZERO_SPAN: Final = b"0" * 16
_SAMPLED: Final = 1


class CallerTrace(msgspec.Struct, frozen=True):
    """The span that a request belongs to, as its caller names it.

    Args:
        trace_id, span_id: never 0.
        sampled: whether the caller records the trace.
    """

    trace_id: int
    span_id: int
    sampled: bool

    @property
    def header(self) -> bytes:
        """The same as a `traceparent` of version 00."""
        return traceparent(self.trace_id, self.span_id, sampled=self.sampled)


def read_traceparent(value: bytes | None) -> CallerTrace | None:
    """What a `traceparent` header says; None for none, and for one that is not well formed: the standard lets a
    broken one start a trace anew rather than spoil the request. Later versions count as far as this one goes."""
    found = None if value is None else _PARENT.fullmatch(value)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == b"ff" or (version == b"00" and more is not None):
        return None
    if trace_id == _ZERO_TRACE or span_id == _ZERO_SPAN:
        return None
    return CallerTrace(int(trace_id, 16), int(span_id, 16), bool(int(flags, 16) & _SAMPLED))


def traceparent(trace_id: int, span_id: int, *, sampled: bool) -> bytes:
    """The header's value."""
    return b"00-%032x-%016x-%02x" % (trace_id, span_id, sampled)
