"""The `traceparent` header, read and written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace import INVALID_SPAN_CONTEXT, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from weighbridge.observability.trace_context import CallerTrace, read_traceparent, traceparent

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_a_header_is_read() -> None:
    found = read_traceparent(f"00-{TRACE}-{SPAN}-01".encode())
    assert found == CallerTrace(int(TRACE, 16), int(SPAN, 16), True)
    assert found.header == f"00-{TRACE}-{SPAN}-01".encode()
    unsampled = read_traceparent(f"00-{TRACE}-{SPAN}-00".encode())
    assert unsampled is not None and not unsampled.sampled
    assert unsampled.header.endswith(b"-00")


def test_a_later_version_counts_as_far_as_ours_goes() -> None:
    found = read_traceparent(f"cc-{TRACE}-{SPAN}-03-what-comes-then".encode())
    assert found is not None and found.sampled
    assert found.header == f"00-{TRACE}-{SPAN}-01".encode()


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"00",
        f"ff-{TRACE}-{SPAN}-01".encode(),
        f"00-{TRACE}-{SPAN}-01-more".encode(),
        f"00-{TRACE.upper()}-{SPAN}-01".encode(),
        f"00-{'0' * 32}-{SPAN}-01".encode(),
        f"00-{TRACE}-{'0' * 16}-01".encode(),
        f"00-{TRACE}-{SPAN}-0g".encode(),
        f"00-{TRACE}-{SPAN}-01\r\nx-injected: 1".encode(),
        f" 00-{TRACE}-{SPAN}-01".encode(),
        f"00-{TRACE}-{SPAN}-01, 00-{TRACE}-{SPAN}-01".encode(),
        f"cc-{TRACE}-{SPAN}-01.more".encode(),
        b"\xff" * 55,
    ],
)
def test_a_broken_one_is_no_trace(value: bytes) -> None:
    assert read_traceparent(value) is None
    assert read_traceparent(None) is None


@given(st.binary(max_size=80) | st.from_regex(rb"\A[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}\Z"))
def test_whatever_comes_in_what_goes_out_is_one_well_formed_header(value: bytes) -> None:
    found = read_traceparent(value)
    if found is not None:
        assert len(found.header) == 55 and found.header.isascii() and b"\r" not in found.header
        assert read_traceparent(found.header) == found


@given(
    st.integers(1, 2**128 - 1),
    st.integers(1, 2**64 - 1),
    st.booleans(),
)
def test_the_standard_library_of_the_field_reads_what_we_write(trace: int, span: int, sampled: bool) -> None:
    header = traceparent(trace, span, sampled=sampled)
    context = TraceContextTextMapPropagator().extract({"traceparent": header.decode()})
    found = get_current_span(context).get_span_context()
    assert found != INVALID_SPAN_CONTEXT
    assert (found.trace_id, found.span_id, bool(found.trace_flags.sampled)) == (trace, span, sampled)
    assert read_traceparent(header) == CallerTrace(trace, span, sampled)
