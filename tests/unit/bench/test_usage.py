"""Reading the completion tokens off an answer."""

from __future__ import annotations

from bench.lib.usage import completion_tokens


def test_the_last_number_of_a_stream_counts() -> None:
    first, last = b'{"usage":{"completion_tokens":3}}', b'{"usage": {"completion_tokens": 64}}'
    answer = b"data: %b\n\ndata: %b\n\ndata: [DONE]\n\n" % (first, last)
    assert completion_tokens(answer) == 64
    assert completion_tokens(bytearray(b"x" * 5000 + answer)) == 64


def test_without_usage_there_is_no_number() -> None:
    assert completion_tokens(b'data: {"usage":null}\n\ndata: [DONE]\n\n') is None
