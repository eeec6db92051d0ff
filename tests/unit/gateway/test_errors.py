"""Errors on the wire and in the log."""

from __future__ import annotations

import logging

import msgspec
import pytest

from weighbridge.config.errors import ApiError
from weighbridge.gateway.errors import error_answer, log_unexpected


def answer(error: ApiError, request_id: str = "id-1") -> tuple[dict[bytes, bytes], dict[str, object]]:
    headers, body = error_answer(error, request_id)
    assert len({name for name, _ in headers}) == len(headers)
    assert dict(headers)[b"content-length"] == b"%d" % len(body)
    return dict(headers), msgspec.json.decode(body)


def test_the_shape_is_openais() -> None:
    headers, body = answer(ApiError(418, "No.", type="server_error", code="teapot", param="model"))
    assert body == {"error": {"message": "No.", "type": "server_error", "param": "model", "code": "teapot"}}
    assert headers[b"content-type"] == b"application/json"
    assert headers[b"x-weighbridge-request-id"] == b"id-1"
    assert b"retry-after" not in headers


@pytest.mark.parametrize(("seconds", "header"), [(0.2, b"1"), (0, b"1"), (2.1, b"3"), (7, b"7")])
def test_retry_after_is_whole_seconds_and_never_none(seconds: float, header: bytes) -> None:
    headers, _ = answer(ApiError(429, "Later.", type="rate_limit_error", retry_after_s=seconds))
    assert headers[b"retry-after"] == header


def test_the_routers_headers_are_sent_and_their_request_id_counts() -> None:
    error = ApiError(429, "Later.", type="rate_limit_error")
    error.answer_headers = [(b"x-weighbridge-road", b"local-8b"), (b"x-weighbridge-request-id", b"id-2")]  # type: ignore[attr-defined]
    headers, _ = answer(error)
    assert headers[b"x-weighbridge-road"] == b"local-8b"
    assert headers[b"x-weighbridge-request-id"] == b"id-2"


def test_401_names_the_scheme() -> None:
    headers, _ = answer(ApiError(401, "Who?", type="invalid_request_error"))
    assert headers[b"www-authenticate"] == b"Bearer"


def test_the_log_names_types_and_lines_but_no_texts(caplog: pytest.LogCaptureFixture) -> None:
    def deep() -> None:
        planted = "planted-secret"
        try:
            int(planted)
        except ValueError as exc:
            raise RuntimeError(f"while reading {planted}") from exc

    def group() -> None:
        try:
            deep()
        except RuntimeError as exc:
            raise ExceptionGroup("planted-secret", [exc]) from None

    with caplog.at_level(logging.ERROR):
        try:
            group()
        except ExceptionGroup as exc:
            log_unexpected(logging.getLogger("test"), exc, "id-3")
    assert "id-3" in caplog.text
    assert "RuntimeError from ValueError" in caplog.text
    assert "gateway/test_errors.py:" in caplog.text
    assert "planted" not in caplog.text
