"""What a collector's answer means for the records that were sent."""

from __future__ import annotations

import email.utils
import math
from typing import Any, Final

import msgspec
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from weighbridge.observability.otlp_post import Answer

LOGS: Final = "/v1/logs"
METRICS: Final = "/v1/metrics"

LONGEST_WAIT_S: Final = 600.0
"""Seconds that a collector may ask us to wait at most, whatever it says."""

_TOO_MUCH: Final = frozenset({400, 413, 422})
_COUNTED: Final = {
    LOGS: ("rejected_log_records", "rejectedLogRecords"),
    METRICS: ("rejected_data_points", "rejectedDataPoints"),
}


class TryLater(Exception):
    """The collector took nothing, or nobody knows whether it did.

    Args:
        reason: one of `observability.metrics.SHIP_FAILURES`.
        after_s: seconds to wait at least, as it asked for.
    """

    def __init__(self, reason: str, after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.after_s = after_s


class Refused(Exception):
    """The collector refuses this request as it is: it is too large, or something in it is not to its liking."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


def judge(path: str, answer: Answer, sent: int, now_s: float) -> int:
    """How many of the `sent` records or points were rejected; the others have arrived.

    Args:
        path: `LOGS` or `METRICS`.
        now_s: UTC seconds since 1970.

    Raises:
        TryLater: see there.
        Refused: see there.
    """
    if 200 <= answer.status < 300:
        rejected = _rejected(path, answer)
        if not 0 <= rejected <= sent:
            raise TryLater("malformed")
        return rejected
    if answer.status in _TOO_MUCH:
        raise Refused(answer.status)
    raise TryLater(_reason(answer.status), _retry_after(answer, now_s))


def _rejected(path: str, answer: Answer) -> int:
    field, json_field = _COUNTED[path]
    kind = ExportLogsServiceResponse if path == LOGS else ExportMetricsServiceResponse
    # Somebody else's page with status 200 must not pass for the word of a collector.
    if "content-encoding" in answer.headers:
        raise TryLater("malformed")
    if answer.content_type == "application/json":
        return _rejected_in_json(answer.body, json_field)
    if answer.content_type not in ("", "application/x-protobuf") or (not answer.content_type and answer.body):
        raise TryLater("malformed")
    try:
        return int(getattr(kind.FromString(answer.body).partial_success, field))
    except DecodeError:
        raise TryLater("malformed") from None


def _rejected_in_json(body: bytes, field: str) -> int:
    try:
        said: Any = msgspec.json.decode(body or b"{}", type=dict[str, Any])
        partial = said.get("partialSuccess") or {}
        return int(partial.get(field) or 0)
    except (msgspec.DecodeError, AttributeError, TypeError, ValueError, OverflowError):
        raise TryLater("malformed") from None


def _reason(status: int) -> str:
    if status in (401, 403):
        return "unauthorized"
    if status in (429, 503):
        return "throttled"
    if status in (408, 504):
        return "timeout"
    if 300 <= status < 400:
        return "redirect"
    return "unavailable" if status >= 500 else "status"


def _retry_after(answer: Answer, now_s: float) -> float:
    text = answer.headers.get("retry-after", "").strip()
    if not text:
        return 0.0
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - now_s
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), LONGEST_WAIT_S) if math.isfinite(seconds) else 0.0
