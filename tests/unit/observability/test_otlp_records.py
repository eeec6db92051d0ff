"""Every column leaves under its own name, and what arrives is what stands in the spool."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from tests.support import ledger_rows as rows
from weighbridge.config.clock import SystemClock
from weighbridge.observability import otlp_records, shipping_read
from weighbridge.observability.ledger import Ledger
from weighbridge.observability.otlp_records import (
    ATTEMPT_NAMES,
    EGRESS_NAMES,
    REQUEST_NAMES,
    Source,
    Unspeakable,
    attributes_of,
    digest,
)
from weighbridge.observability.shipping_read import EGRESS, REQUESTS, Record

SOURCE = Source("0123", "9.9")


def columns(spool: Path, table: str) -> set[str]:
    with closing(sqlite3.connect(spool)) as conn:
        return {row[1] for row in conn.execute(f"PRAGMA table_info({table})")}


def test_every_column_has_a_name_of_its_own(spool: Path) -> None:
    Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY).close_sync()
    assert columns(spool, "requests") == REQUEST_NAMES.keys()
    # An attempt stands inside its request, which says the id.
    assert columns(spool, "attempts") == ATTEMPT_NAMES.keys() | {"request_id"}
    assert columns(spool, "egress") == EGRESS_NAMES.keys()
    for names in (REQUEST_NAMES, ATTEMPT_NAMES, EGRESS_NAMES):
        attributes = [attribute for attribute, _ in names.values()]
        assert len(set(attributes)) == len(attributes)
        assert all("." in attribute and attribute == attribute.lower() for attribute in attributes)
    assert otlp_records.ATTEMPTS not in {attribute for attribute, _ in REQUEST_NAMES.values()}


async def test_a_record_holds_every_column(spool: Path) -> None:
    ledger = Ledger.open(spool, clock=SystemClock(), chain_key=rows.CHAIN_KEY)
    await ledger.intent(rows.intent(p_70b_fails=0.125))
    ledger.attempt(rows.attempt(egress_id="e1", backend="main", model="m-1", worker_us=5))
    await ledger.record_egress(rows.egress())
    await ledger.completion(rows.completion(error_code="late", tpot_ms=2.5))
    await ledger.close()
    with closing(sqlite3.connect(spool)) as conn:
        conn.execute(
            "UPDATE requests SET currency='USD', price_version='p1', cost_nano=7, counterfactual_nano=9"
        )
        conn.execute("UPDATE attempts SET cost_nano = 7, queue_ms = 1.5")
        conn.commit()
    with closing(shipping_read.open_spool(spool)) as conn:
        (request,) = shipping_read.batch(conn, REQUESTS, 0, 10)
        (egress,) = shipping_read.batch(conn, EGRESS, 0, 10)
    said = attributes_of(REQUESTS, request)
    assert said.keys() == {a for a, _ in REQUEST_NAMES.values()} | {otlp_records.ATTEMPTS}
    assert said[otlp_records.ATTEMPTS][0].keys() == {a for a, _ in ATTEMPT_NAMES.values()}
    assert attributes_of(EGRESS, egress).keys() == {a for a, _ in EGRESS_NAMES.values()}
    assert said["weighbridge.cost.nano"] == 7
    # What was asked for, of us and of the backend: what answered nobody tells.
    assert said["gen_ai.request.model"] == rows.intent().model_requested
    assert said[otlp_records.ATTEMPTS][0]["gen_ai.request.model"] == "m-1"
    assert said["gen_ai.usage.input_tokens"] == 10
    record = otlp_records.log_record(REQUESTS, request)
    assert record.time_unix_nano == rows.completion().ended_ns
    assert record.SerializeToString() == otlp_records.log_record(REQUESTS, request).SerializeToString()


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INT = st.integers(-(2**63), 2**63 - 1)
REAL = st.floats(allow_nan=False, allow_infinity=False)
OF_TYPE: dict[str, st.SearchStrategy[Any]] = {
    otlp_records.TYPE_TEXT: TEXT,
    otlp_records.TYPE_INT: INT,
    otlp_records.TYPE_REAL: st.one_of(REAL, st.integers(-(2**53), 2**53)),
    otlp_records.TYPE_FLAG: st.sampled_from([0, 1]),
    otlp_records.TYPE_TEXTS: st.lists(TEXT, max_size=4).map(lambda held: json.dumps(held)),
    otlp_records.TYPE_COUNTS: st.dictionaries(TEXT, INT, max_size=4).map(lambda held: json.dumps(held)),
}


def a_row(names: otlp_records.Names) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {column: st.one_of(st.none(), OF_TYPE[kind]) for column, (_, kind) in names.items()}
    )


def a_record(stream: str) -> st.SearchStrategy[Record]:
    names = REQUEST_NAMES if stream == REQUESTS else EGRESS_NAMES
    tried = st.lists(a_row(ATTEMPT_NAMES), max_size=3).map(tuple) if stream == REQUESTS else st.just(())
    return st.builds(Record, id=TEXT, seq=INT, at_ns=INT, row=a_row(names), attempts=tried)


@settings(deadline=None)
@given(st.sampled_from([REQUESTS, EGRESS]).flatmap(lambda s: st.tuples(st.just(s), a_record(s))))
def test_what_a_sink_writes_down_reads_back_the_same(given_: tuple[str, Record]) -> None:
    stream, record = given_
    attributes = attributes_of(stream, record)
    body = otlp_records.encode(SOURCE, [otlp_records.log_record(stream, record)])
    document = json.loads(json.dumps(MessageToDict(ExportLogsServiceRequest.FromString(body))))
    (said,) = document["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    back = otlp_records.read_attributes(said["attributes"])
    assert back.pop(otlp_records.UID) == f"{record.id}.{record.seq}"
    assert back == attributes
    assert digest(back) == digest(attributes)


@settings(deadline=None)
@given(a_record(REQUESTS), st.sampled_from(sorted(REQUEST_NAMES)), st.data())
def test_any_other_value_has_another_digest(record: Record, column: str, data: st.DataObject) -> None:
    attribute, kind = REQUEST_NAMES[column]
    other = data.draw(OF_TYPE[kind])
    changed = Record(record.id, record.seq, record.at_ns, {**record.row, column: other}, record.attempts)
    before, after = attributes_of(REQUESTS, record), attributes_of(REQUESTS, changed)
    assert (digest(before) == digest(after)) == (before.get(attribute) == after.get(attribute))


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | INT | TEXT, lambda below: st.lists(below) | st.dictionaries(TEXT, below)
    )
)
def test_a_line_that_is_no_attribute_is_refused_and_no_more(value: Any) -> None:
    pairs = value if isinstance(value, list) else [value]
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        otlp_records.read_attributes([*pairs, {"key": "x", "value": {"intValue": "no number"}}])


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("prompt_tokens", "secret words"),
        ("prompt_tokens", 1.5),
        ("tenant", 7),
        ("tenant", b"secret words"),
        ("stream", 2),
        ("stream", "secret words"),
        ("total_ms", "secret words"),
        ("reasons", "secret words"),
        ("reasons", '{"secret words": 1}'),
        ("reasons", 3),
    ],
)
def test_a_value_of_another_type_is_not_sent_and_not_told(column: str, value: Any) -> None:
    with pytest.raises(Unspeakable) as caught:
        attributes_of(REQUESTS, Record("r", 1, 1, {column: value}))
    assert column in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_column_that_nobody_knows_is_not_sent() -> None:
    assert attributes_of(REQUESTS, Record("r", 1, 1, {"prompt": "secret words"})) == {}


def test_the_record_does_not_show_its_row_when_it_is_printed() -> None:
    assert "secret" not in repr(Record("r", 1, 1, {"x": "secret"}, ({"y": "secret"},)))
