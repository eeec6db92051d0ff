"""A collector that keeps what it takes, on a socket of its own, in a thread of its own; it can be told to misbehave."""

from __future__ import annotations

import gzip
import http.server
import json
import socket
import socketserver
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

UID = "log.record.uid"


@dataclass
class Mode:
    """How the next requests to `/v1/logs` are answered.

    Args:
        status: of the answer; with 2xx the records are kept.
        headers: added to the answer.
        body: of the answer in place of the right one.
        content_type: of the answer.
        first_s: seconds before the answer begins; records are kept before that.
        drip_s: seconds between the bytes of the answer.
        cut: reset the connection once the request was read; records are kept when `keeps`.
        hang: never answer.
        keeps: whether records are kept although the answer is no 2xx, or none comes.
        rejects: which records are rejected by a partial success.
        refuses: which records make the whole request a 400, or the status given by `refusal`.
        most: more records than this get a 413.
        raw: bytes to answer with in place of HTTP.
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str | None = "application/x-protobuf"
    first_s: float = 0.0
    drip_s: float = 0.0
    cut: bool = False
    hang: bool = False
    keeps: bool = False
    rejects: Callable[[LogRecord], bool] | None = None
    refuses: Callable[[LogRecord], bool] | None = None
    refusal: int = 400
    most: int | None = None
    raw: bytes | None = None


OK = Mode()


def plain(value: AnyValue) -> Any:
    """An attribute's value in Python's types."""
    match value.WhichOneof("value"):
        case "array_value":
            return [plain(item) for item in value.array_value.values]
        case "kvlist_value":
            return {pair.key: plain(pair.value) for pair in value.kvlist_value.values}
        case None:
            return None
        case kind:
            return getattr(value, kind)


def attributes(record: LogRecord) -> dict[str, Any]:
    return {pair.key: plain(pair.value) for pair in record.attributes}


def id_of(record: LogRecord) -> str:
    held = attributes(record)
    key = "weighbridge.egress.id" if record.event_name == "weighbridge.egress" else "weighbridge.request.id"
    return str(held[key])


class Receiver:
    """What was received. `mode` may be changed at any time."""

    def __init__(self, port: int = 0) -> None:
        self.mode = OK
        self.metrics_mode = OK
        self.requests: list[tuple[str, dict[str, str], int]] = []
        """Path, headers and number of records of each request that came in whole."""
        self.records: list[LogRecord] = []
        """What was kept, in order of arrival, copies included."""
        self.exports: list[ExportLogsServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.traces_mode = OK
        self.spans: list[Span] = []
        self.changed = threading.Condition()
        self._stopping = threading.Event()
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                receiver._serve(self)

            def do_GET(self) -> None:
                receiver._note("GET " + self.path, dict(self.headers), 0)
                self.send_error(404)

            def log_message(self, *_: Any) -> None:
                return

        class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 128

            def handle_error(self, *_: Any) -> None:
                return

        self._server = Server(("127.0.0.1", port), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()

    # ---- what a test asks ----

    def uids(self, event: str = "weighbridge.request") -> Counter[str]:
        """How often each record and revision was kept."""
        with self.changed:
            return Counter(attributes(r)[UID] for r in self.records if r.event_name == event)

    def latest(self, event: str = "weighbridge.request") -> dict[str, dict[str, Any]]:
        """The attributes of the highest revision of each id: what a sink holds that tells copies by id."""
        found: dict[str, dict[str, Any]] = {}
        with self.changed:
            records = [r for r in self.records if r.event_name == event]
        for record in records:
            held, key = attributes(record), id_of(record)
            if (
                key not in found
                or held["weighbridge.record.revision"] >= found[key]["weighbridge.record.revision"]
            ):
                found[key] = held
        return found

    def wait(self, true: Callable[[], bool], within_s: float = 20.0) -> None:
        """Raises: TimeoutError when it does not come true."""
        due = time.monotonic() + within_s
        with self.changed:
            while not true():
                left = due - time.monotonic()
                if left <= 0 or (not self.changed.wait(min(left, 0.5)) and time.monotonic() >= due):
                    raise TimeoutError

    def write(self, path: Path) -> None:
        """What the standard collector's file exporter writes: a line of OTLP/JSON for each request."""
        with self.changed:
            exports = list(self.exports)
        with path.open("w", encoding="utf-8") as file:
            for export in exports:
                file.write(
                    json.dumps(MessageToDict(export, use_integers_for_enums=True), ensure_ascii=False) + "\n"
                )

    # ---- the server ----

    def _note(self, path: str, headers: dict[str, str], count: int) -> None:
        with self.changed:
            self.requests.append((path, {k.lower(): v for k, v in headers.items()}, count))
            self.changed.notify_all()

    def _keep(self, export: ExportLogsServiceRequest, kept: list[LogRecord]) -> None:
        with self.changed:
            self.exports.append(export)
            self.records += kept
            self.changed.notify_all()

    def _serve(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["content-length"]))
        if handler.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        if handler.path.endswith("/v1/metrics"):
            self._serve_metrics(handler, body)
            return
        if handler.path.endswith("/v1/traces"):
            self._serve_traces(handler, body)
            return
        export = ExportLogsServiceRequest.FromString(body)
        records = [r for per in export.resource_logs for s in per.scope_logs for r in s.log_records]
        mode = self.mode
        self._note(handler.path, dict(handler.headers), len(records))
        status, answer, kept = mode.status, ExportLogsServiceResponse(), records
        if mode.most is not None and len(records) > mode.most:
            status, kept = 413, []
        elif mode.refuses is not None and any(mode.refuses(r) for r in records):
            status, kept = mode.refusal, []
        elif mode.rejects is not None:
            kept = [r for r in records if not mode.rejects(r)]
            answer.partial_success.rejected_log_records = len(records) - len(kept)
            answer.partial_success.error_message = "some were not to our liking"
        good = (
            200 <= status < 300 and not mode.cut and not mode.hang and mode.raw is None and mode.body is None
        )
        if records and kept and (good or mode.keeps):
            trimmed = ExportLogsServiceRequest()
            trimmed.CopyFrom(export)
            if len(kept) != len(records):
                del trimmed.resource_logs[0].scope_logs[0].log_records[:]
                trimmed.resource_logs[0].scope_logs[0].log_records.extend(kept)
            self._keep(trimmed, kept)
        self._answer(handler, mode, status, answer.SerializeToString() if mode.body is None else mode.body)

    def _serve_metrics(self, handler: http.server.BaseHTTPRequestHandler, body: bytes) -> None:
        export = ExportMetricsServiceRequest.FromString(body)
        self._note(handler.path, dict(handler.headers), 0)
        with self.changed:
            self.metrics.append(export)
            self.changed.notify_all()
        mode = self.metrics_mode
        self._answer(handler, mode, mode.status, ExportMetricsServiceResponse().SerializeToString())

    def _serve_traces(self, handler: http.server.BaseHTTPRequestHandler, body: bytes) -> None:
        export = ExportTraceServiceRequest.FromString(body)
        spans = [span for per in export.resource_spans for s in per.scope_spans for span in s.spans]
        self._note(handler.path, dict(handler.headers), len(spans))
        mode = self.traces_mode
        if mode == OK:
            with self.changed:
                self.spans += spans
                self.changed.notify_all()
        self._answer(handler, mode, mode.status, ExportTraceServiceResponse().SerializeToString())

    def _answer(
        self, handler: http.server.BaseHTTPRequestHandler, mode: Mode, status: int, body: bytes
    ) -> None:
        handler.close_connection = True
        if mode.hang:
            self._stopping.wait(60)
            return
        if mode.cut:
            # A reset rather than a tidy end.
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.connection.close()
            return
        self._stopping.wait(mode.first_s)
        if mode.raw is not None:
            handler.wfile.write(mode.raw)
            return
        head = f"HTTP/1.1 {status} X\r\ncontent-length: {len(body)}\r\n"
        if mode.content_type is not None:
            head += f"content-type: {mode.content_type}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in mode.headers.items())
        data = f"{head}\r\n".encode() + body
        if not mode.drip_s:
            handler.wfile.write(data)
            return
        for byte in data:
            handler.wfile.write(bytes((byte,)))
            handler.wfile.flush()
            if self._stopping.wait(mode.drip_s):
                return


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    receiver = Receiver(port)
    try:
        yield receiver
    finally:
        receiver.close()
