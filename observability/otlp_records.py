"""Usage records as OTLP log records: which attribute each column is, and the digest that two copies are compared by.

A record is told by its id (`weighbridge.request.id` or `weighbridge.egress.id`) and its revision
(`weighbridge.record.revision`); a higher revision of an id takes the place of a lower one, and the same revision again
is the same record. `log.record.uid` is the two in one. Attributes that hold nothing are left out.

Names out of OpenTelemetry's conventions are used where there is one for the thing; all others begin with `weighbridge.`
and stay as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from weighbridge.observability.shipping_read import EGRESS, REQUESTS, Record

SERVICE: Final = "weighbridge"
INSTANCE: Final = "service.instance.id"
SCOPE: Final = "weighbridge.usage"
EVENTS: Final = {REQUESTS: "weighbridge.request", EGRESS: "weighbridge.egress"}
"""The event's name, by stream; also the body, for whoever keeps no event names."""
IDS: Final = {REQUESTS: "weighbridge.request.id", EGRESS: "weighbridge.egress.id"}
REVISION: Final = "weighbridge.record.revision"
UID: Final = "log.record.uid"
ATTEMPTS: Final = "weighbridge.attempts"

TYPE_TEXT: Final = "text"
TYPE_INT: Final = "int"
TYPE_REAL: Final = "real"
TYPE_FLAG: Final = "flag"
TYPE_TEXTS: Final = "texts"
TYPE_COUNTS: Final = "counts"

Names = Mapping[str, tuple[str, str]]
"""Attribute and type, by column."""

REQUEST_NAMES: Final[Names] = {
    "request_id": (IDS[REQUESTS], TYPE_TEXT),
    "seq": (REVISION, TYPE_INT),
    "admitted_ns": ("weighbridge.request.admitted_ns", TYPE_INT),
    "tenant": ("weighbridge.tenant", TYPE_TEXT),
    "key_id": ("weighbridge.key.id", TYPE_TEXT),
    "model_requested": ("gen_ai.request.model", TYPE_TEXT),
    "stream": ("gen_ai.request.stream", TYPE_FLAG),
    "road_decided": ("weighbridge.road.decided", TYPE_TEXT),
    "score": ("weighbridge.difficulty.score", TYPE_REAL),
    "p_8b_fails": ("weighbridge.difficulty.p_8b_fails", TYPE_REAL),
    "p_70b_fails": ("weighbridge.difficulty.p_70b_fails", TYPE_REAL),
    "task": ("weighbridge.difficulty.task", TYPE_TEXT),
    "policy_version": ("weighbridge.policy.version", TYPE_TEXT),
    "calibration_version": ("weighbridge.calibration.version", TYPE_TEXT),
    "reasons": ("weighbridge.decision.reasons", TYPE_TEXTS),
    "ended_ns": ("weighbridge.request.ended_ns", TYPE_INT),
    "outcome": ("weighbridge.outcome", TYPE_TEXT),
    "status": ("http.response.status_code", TYPE_INT),
    "road": ("weighbridge.road", TYPE_TEXT),
    "attempts": ("weighbridge.attempts.count", TYPE_INT),
    "prompt_tokens": ("gen_ai.usage.input_tokens", TYPE_INT),
    "cached_tokens": ("gen_ai.usage.cache_read.input_tokens", TYPE_INT),
    "completion_tokens": ("gen_ai.usage.output_tokens", TYPE_INT),
    "tokens_exact": ("weighbridge.usage.exact", TYPE_FLAG),
    "queue_ms": ("weighbridge.queue_ms", TYPE_REAL),
    "ttft_ms": ("weighbridge.ttft_ms", TYPE_REAL),
    "tpot_ms": ("weighbridge.tpot_ms", TYPE_REAL),
    "total_ms": ("weighbridge.total_ms", TYPE_REAL),
    "error_code": ("error.type", TYPE_TEXT),
    "worker_us": ("weighbridge.worker_us", TYPE_INT),
    "currency": ("weighbridge.cost.currency", TYPE_TEXT),
    "price_version": ("weighbridge.price.version", TYPE_TEXT),
    "cost_nano": ("weighbridge.cost.nano", TYPE_INT),
    "counterfactual_nano": ("weighbridge.cost.counterfactual_nano", TYPE_INT),
}

ATTEMPT_NAMES: Final[Names] = {
    "n": ("weighbridge.attempt.n", TYPE_INT),
    "road": ("weighbridge.road", TYPE_TEXT),
    "started_ns": ("weighbridge.attempt.started_ns", TYPE_INT),
    "ended_ns": ("weighbridge.attempt.ended_ns", TYPE_INT),
    "outcome": ("weighbridge.outcome", TYPE_TEXT),
    "backend": ("weighbridge.backend", TYPE_TEXT),
    "model": ("gen_ai.request.model", TYPE_TEXT),
    "prompt_tokens": ("gen_ai.usage.input_tokens", TYPE_INT),
    "cached_tokens": ("gen_ai.usage.cache_read.input_tokens", TYPE_INT),
    "completion_tokens": ("gen_ai.usage.output_tokens", TYPE_INT),
    "queue_ms": ("weighbridge.queue_ms", TYPE_REAL),
    "worker_us": ("weighbridge.worker_us", TYPE_INT),
    "cost_nano": ("weighbridge.cost.nano", TYPE_INT),
    "egress_id": (IDS[EGRESS], TYPE_TEXT),
}

EGRESS_NAMES: Final[Names] = {
    "egress_id": (IDS[EGRESS], TYPE_TEXT),
    "seq": (REVISION, TYPE_INT),
    "request_id": (IDS[REQUESTS], TYPE_TEXT),
    "attempt": ("weighbridge.attempt.n", TYPE_INT),
    "at_ns": ("weighbridge.egress.at_ns", TYPE_INT),
    "endpoint": ("weighbridge.egress.endpoint", TYPE_TEXT),
    "reason": ("weighbridge.egress.reason", TYPE_TEXT),
    "body_hash": ("weighbridge.egress.body_hash", TYPE_TEXT),
    "body_bytes": ("weighbridge.egress.body_bytes", TYPE_INT),
    "entities": ("weighbridge.egress.entities", TYPE_COUNTS),
    "policy_version": ("weighbridge.policy.version", TYPE_TEXT),
    "detector_version": ("weighbridge.detector.version", TYPE_TEXT),
    "form": ("weighbridge.chain.form", TYPE_INT),
    "key_id": ("weighbridge.chain.key_id", TYPE_TEXT),
    "adopted": ("weighbridge.chain.adopted", TYPE_FLAG),
    "chain": ("weighbridge.chain.link", TYPE_TEXT),
}

_NAMES: Final = {REQUESTS: REQUEST_NAMES, EGRESS: EGRESS_NAMES}
OURS: Final = {
    stream: frozenset(attribute for attribute, _ in names.values()) | {ATTEMPTS}
    for stream, names in _NAMES.items()
}
"""Attributes that the digest is made of; a collector may add others to a record."""

_SEVERITY: Final = {
    "truncated": SeverityNumber.SEVERITY_NUMBER_WARN,
    "refused": SeverityNumber.SEVERITY_NUMBER_WARN,
    "error": SeverityNumber.SEVERITY_NUMBER_ERROR,
    "lost": SeverityNumber.SEVERITY_NUMBER_ERROR,
}


class Unspeakable(Exception):
    """A row holds what its column does not. `str()` names the column, and nothing that is in it."""


@dataclass(frozen=True, slots=True)
class Source:
    """Who ships.

    Args:
        spool: names the spool, for as long as it is used.
        version: of this program.
    """

    spool: str
    version: str

    def resource(self) -> Resource:
        held = {"service.name": SERVICE, INSTANCE: self.spool, "service.version": self.version}
        made = Resource()
        put_attributes(made.attributes, held)
        return made


def attributes_of(stream: str, record: Record) -> dict[str, Any]:
    """A record's attributes: text, whole numbers, numbers, flags, lists of text and nested mappings.

    Raises:
        Unspeakable: see there.
    """
    made = _named(_NAMES[stream], record.row)
    if record.attempts:
        made[ATTEMPTS] = [_named(ATTEMPT_NAMES, attempt) for attempt in record.attempts]
    return made


def _named(names: Names, row: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for column, (attribute, kind) in names.items():
        value = row.get(column)
        if value is None or (kind == TYPE_TEXT and value == ""):
            continue
        made[attribute] = _checked(column, kind, value)
    return made


def _checked(column: str, kind: str, value: Any) -> Any:
    # SQLite keeps what it is given, whatever the column says.
    if kind == TYPE_TEXT and isinstance(value, str):
        return value
    if kind == TYPE_INT and type(value) is int:
        return value
    if kind == TYPE_REAL and type(value) in (int, float):
        return float(value)
    if kind == TYPE_FLAG and value in (0, 1):
        return bool(value)
    if kind in (TYPE_TEXTS, TYPE_COUNTS) and isinstance(value, str):
        try:
            return msgspec.json.decode(value, type=list[str] if kind == TYPE_TEXTS else dict[str, int])
        except msgspec.DecodeError:
            pass
    raise Unspeakable(f"the column {column} holds something else")


def digest(attributes: Mapping[str, Any]) -> bytes:
    """What two copies of a record have in common if they are the same: 32 bytes over its attributes."""
    return hashlib.sha256(_canonical(attributes)).digest()


_canonical = msgspec.json.Encoder(order="deterministic").encode


def put_attributes(pairs: Any, attributes: Mapping[str, Any]) -> None:
    """Add attributes to a repeated field of `KeyValue`. In place: making the messages first takes twice as long.

    Raises:
        TypeError: a value that no attribute has.
    """
    for key, value in attributes.items():
        pair = pairs.add()
        pair.key = key
        put_value(pair.value, value)


def put_value(target: AnyValue, value: Any) -> None:
    """Set one value. Raises: TypeError for one that no attribute has."""
    kind = type(value)
    if kind is str:
        target.string_value = value
    elif kind is int:
        target.int_value = value
    elif kind is float:
        target.double_value = value
    elif kind is bool:
        target.bool_value = value
    elif kind is list:
        target.array_value.SetInParent()
        for item in value:
            put_value(target.array_value.values.add(), item)
    elif kind is dict:
        target.kvlist_value.SetInParent()
        put_attributes(target.kvlist_value.values, value)
    else:
        raise TypeError(kind.__name__)


def log_record(stream: str, record: Record) -> LogRecord:
    """A record in protobuf.

    Raises:
        Unspeakable: see there.
    """
    attributes = attributes_of(stream, record)
    at_ns = record.at_ns if 0 <= record.at_ns < 2**63 else 0
    severity = _SEVERITY.get(str(record.row.get("outcome")), SeverityNumber.SEVERITY_NUMBER_INFO)
    made = LogRecord(
        time_unix_nano=at_ns,
        # The same each time the record is sent: a copy is a copy, byte for byte.
        observed_time_unix_nano=at_ns,
        severity_number=severity,
        severity_text=SeverityNumber.Name(severity).removeprefix("SEVERITY_NUMBER_"),
        event_name=EVENTS[stream],
    )
    made.body.string_value = EVENTS[stream]
    put_attributes(made.attributes, {UID: f"{record.id}.{record.seq}", **attributes})
    return made


def encode(source: Source, records: Iterable[LogRecord]) -> bytes:
    """The body of a request to `/v1/logs`."""
    scope = ScopeLogs(scope=InstrumentationScope(name=SCOPE, version=source.version), log_records=records)
    made = ExportLogsServiceRequest(
        resource_logs=[ResourceLogs(resource=source.resource(), scope_logs=[scope])]
    )
    return bytes(made.SerializeToString())


def read_value(value: Mapping[str, Any]) -> Any:
    """The value in an attribute of OTLP's JSON, as `attributes_of` has it.

    Raises:
        ValueError: it is none.
    """
    if len(value) != 1:
        raise ValueError("not one value")
    ((kind, held),) = value.items()
    if kind == "stringValue" and isinstance(held, str):
        return held
    if kind == "boolValue" and isinstance(held, bool):
        return held
    if kind == "intValue" and type(held) in (int, str):
        return int(held)
    if kind == "doubleValue" and type(held) in (int, float, str):
        return float(held)
    if kind == "arrayValue" and isinstance(held, Mapping):
        return [read_value(item) for item in held.get("values") or ()]
    if kind == "kvlistValue" and isinstance(held, Mapping):
        return read_attributes(held.get("values") or ())
    raise ValueError("not a value")


def read_attributes(pairs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Attributes out of OTLP's JSON. Raises: ValueError, TypeError, AttributeError where it is none."""
    return {pair.get("key", ""): read_value(pair.get("value") or {}) for pair in pairs}
