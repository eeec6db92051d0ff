"""`usage verify` tells each way in which a sink and its spool can differ, and nothing else."""

from __future__ import annotations

import asyncio
import gzip
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support import ledger_rows as rows
from tests.support.otlp_receiver import Mode, id_of, receiving
from tests.support.shipping import shipping
from weighbridge.gateway.cli import main
from weighbridge.observability.shipping_verify import CannotTell, verify


@pytest.fixture
async def shipped(spool: Path, tmp_path: Path) -> Path:
    """An export of a sink that has 30 requests and two egress rows of the spool."""
    return await ship(spool, tmp_path / "sink.jsonl")


async def ship(spool: Path, export: Path, mode: Mode | None = None) -> Path:
    with receiving() as collector:
        collector.mode = mode or collector.mode
        async with shipping(spool, collector.url, batch_size=7) as here:
            ids = await here.fill(30)
            await here.ledger.record_egress(rows.egress("e1", ids[0]))
            await here.ledger.record_egress(rows.egress("e2", ids[1]))
            await asyncio.to_thread(collector.wait, lambda: here.shipper.standing().records == 0)
        collector.write(export)
    return export


def edited(export: Path, change: Callable[[list[dict[str, Any]]], None]) -> Path:
    """The export with the list of all its log records changed; each is in a document of its own then."""
    lines, found = [json.loads(line) for line in export.read_text().splitlines()], []
    for document in lines:
        for resource in document["resourceLogs"]:
            found += resource["scopeLogs"][0]["logRecords"]
    change(found)
    about = lines[0]["resourceLogs"][0]["resource"]
    export.write_text(
        "".join(
            json.dumps({"resourceLogs": [{"resource": about, "scopeLogs": [{"logRecords": [record]}]}]})
            + "\n"
            for record in found
        )
    )
    return export


def named(record: dict[str, Any], key: str) -> dict[str, Any]:
    (value,) = (pair["value"] for pair in record["attributes"] if pair["key"] == key)
    return value  # type: ignore[no-any-return]


def request(records: list[dict[str, Any]], id_: str) -> dict[str, Any]:
    def has(record: dict[str, Any]) -> bool:
        return {"key": "weighbridge.request.id", "value": {"stringValue": id_}} in record["attributes"]

    return next(r for r in records if r["eventName"] == "weighbridge.request" and has(r))


async def test_what_was_shipped_agrees(spool: Path, shipped: Path) -> None:
    found = verify(spool, [shipped])
    assert found.agrees
    assert (found.agreeing, found.duplicates, found.waiting) == (32, 0, 0)


async def test_a_packed_export_and_one_in_parts_are_read(spool: Path, shipped: Path, tmp_path: Path) -> None:
    lines = shipped.read_bytes().splitlines(keepends=True)
    (tmp_path / "a").write_bytes(b"".join(lines[:2]))
    (tmp_path / "b.gz").write_bytes(gzip.compress(b"".join(lines[2:])))
    assert verify(spool, [tmp_path / "a", tmp_path / "b.gz"]).agreeing == 32


async def test_copies_are_fine_and_counted(spool: Path, shipped: Path) -> None:
    edited(shipped, lambda records: records.extend(records[:5]))
    found = verify(spool, [shipped])
    assert found.agrees
    assert found.duplicates == 5


async def test_a_record_that_did_not_arrive_is_missing(spool: Path, shipped: Path) -> None:
    edited(shipped, lambda records: records.remove(request(records, "r00007")))
    found = verify(spool, [shipped])
    assert (found.faults, found.named) == ({"missing": 1}, {"missing": ["requests r00007"]})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("gen_ai.usage.output_tokens", {"intValue": "21"}),
        ("weighbridge.tenant", {"stringValue": "other"}),
        ("weighbridge.total_ms", {"doubleValue": 900.25}),
        ("weighbridge.usage.exact", {"boolValue": False}),
        ("weighbridge.attempts", {"arrayValue": {}}),
    ],
)
async def test_a_changed_value_differs(spool: Path, shipped: Path, key: str, value: dict[str, Any]) -> None:
    def change(records: list[dict[str, Any]]) -> None:
        held = named(request(records, "r00007"), key)
        held.clear()
        held.update(value)

    found = verify(spool, [edited(shipped, change)])
    assert found.named == {"differing": ["requests r00007"]}


async def test_a_copy_that_differs_from_the_first_differs(spool: Path, shipped: Path) -> None:
    def change(records: list[dict[str, Any]]) -> None:
        copy = json.loads(json.dumps(request(records, "r00007")))
        named(copy, "weighbridge.tenant")["stringValue"] = "other"
        records.append(copy)

    assert verify(spool, [edited(shipped, change)]).named == {"differing": ["requests r00007"]}


async def test_what_a_collector_adds_to_a_record_does_not_matter(spool: Path, shipped: Path) -> None:
    def change(records: list[dict[str, Any]]) -> None:
        for record in records:
            record["attributes"].append({"key": "k8s.pod.name", "value": {"stringValue": "x"}})
            record["attributes"].reverse()
            record["observedTimeUnixNano"] = "1"

    assert verify(spool, [edited(shipped, change)]).agrees


async def test_a_record_that_the_spool_does_not_know_is_unknown(spool: Path, shipped: Path) -> None:
    def change(records: list[dict[str, Any]]) -> None:
        copy = json.loads(json.dumps(request(records, "r00007")))
        named(copy, "weighbridge.request.id")["stringValue"] = "made-up"
        records.append(copy)

    assert verify(spool, [edited(shipped, change)]).named == {"unknown": ["requests made-up"]}


async def test_a_revision_beyond_the_spools_is_unknown(spool: Path, shipped: Path) -> None:
    """The spool was put back from an older copy."""

    def change(records: list[dict[str, Any]]) -> None:
        copy = json.loads(json.dumps(request(records, "r00007")))
        named(copy, "weighbridge.record.revision")["intValue"] = "999"
        records.append(copy)

    assert verify(spool, [edited(shipped, change)]).named == {"unknown": ["requests r00007"]}


async def test_rows_that_went_by_their_age_are_no_fault(spool: Path, shipped: Path) -> None:
    with closing(sqlite3.connect(spool)) as conn:
        conn.execute("UPDATE requests SET ended_ns = ended_ns + 1 WHERE request_id >= 'r00010'")
        conn.execute("DELETE FROM requests WHERE request_id < 'r00010'")
        conn.commit()

    def change(records: list[dict[str, Any]]) -> None:
        for record in records:
            if record["eventName"] == "weighbridge.request":
                ended = named(record, "weighbridge.request.ended_ns")
                if named(record, "weighbridge.request.id")["stringValue"] >= "r00010":
                    ended["intValue"] = str(int(ended["intValue"]) + 1)

    found = verify(spool, [edited(shipped, change)])
    assert found.agrees
    assert (found.retired, found.agreeing) == (10, 22)


async def test_a_rejected_record_that_stays_for_ever_makes_no_other_unknown(
    spool: Path, tmp_path: Path
) -> None:
    mode = Mode(rejects=lambda record: id_of(record) == "r00000")
    export = await ship(spool, tmp_path / "sink.jsonl", mode)
    with closing(sqlite3.connect(spool)) as conn:
        conn.execute("UPDATE requests SET ended_ns = 1 WHERE request_id = 'r00000'")
        conn.commit()
    let_go(spool, "request_id BETWEEN 'r00001' AND 'r00010'", newer_ns=5)
    found = verify(spool, [export])
    assert found.retired == 10
    assert "unknown" not in found.faults
    assert found.named["rejected"] == ["requests r00000 (rejected)"]


def let_go(spool: Path, which: str, *, newer_ns: int) -> None:
    """As retention does, in a spool whose other records but the rejected ended later."""
    with closing(sqlite3.connect(spool)) as conn:
        conn.execute(f"DELETE FROM requests WHERE {which}")
        conn.execute("UPDATE requests SET ended_ns = ended_ns + ? WHERE ended_ns > 1", (newer_ns,))
        conn.commit()


@pytest.mark.parametrize("rejected", ["", "r00029"])
async def test_when_all_have_gone_what_was_shipped_is_known_by_its_number(
    spool: Path, tmp_path: Path, rejected: str
) -> None:
    mode = Mode(rejects=lambda record: id_of(record) == rejected)
    export = await ship(spool, tmp_path / "sink.jsonl", mode)
    let_go(spool, f"request_id != '{rejected}'", newer_ns=0)

    def forge(records: list[dict[str, Any]]) -> None:
        copy = json.loads(json.dumps(request(records, "r00007")))
        named(copy, "weighbridge.request.id")["stringValue"] = "made-up"
        named(copy, "weighbridge.record.revision")["intValue"] = "31"
        records.append(copy)

    found = verify(spool, [edited(export, forge)])
    assert found.retired == (29 if rejected else 30)
    assert found.named["unknown"] == ["requests made-up"]
    assert found.named.keys() == ({"unknown", "rejected"} if rejected else {"unknown"})


async def test_an_egress_record_never_goes_by_its_age(spool: Path, shipped: Path) -> None:
    with closing(sqlite3.connect(spool)) as conn:
        conn.execute("DELETE FROM egress")
        conn.commit()
    assert verify(spool, [shipped]).named == {"unknown": ["egress e1", "egress e2"]}


async def test_other_gateways_records_are_not_looked_at(spool: Path, shipped: Path, tmp_path: Path) -> None:
    other = await ship(tmp_path / "other" / "ledger.sqlite3", tmp_path / "other.jsonl")
    found = verify(spool, [shipped, other])
    assert found.agrees
    assert found.elsewhere == 32


async def test_what_is_not_shipped_yet_is_no_fault(spool: Path, shipped: Path) -> None:
    async with shipping(spool, "http://127.0.0.1:1", start=False) as here:
        await here.fill(4, "new")
    found = verify(spool, [shipped])
    assert found.agrees
    assert found.waiting == 4


async def test_an_older_revision_in_the_sink_is_no_fault(spool: Path, shipped: Path, tmp_path: Path) -> None:
    with receiving() as collector:
        async with shipping(spool, collector.url) as here:
            here.ledger.attempt(rows.attempt("r00003", 2))
            await asyncio.to_thread(collector.wait, lambda: len(collector.records) == 1)
        collector.write(tmp_path / "later.jsonl")
    found = verify(spool, [shipped, tmp_path / "later.jsonl"])
    assert found.agrees
    assert (found.agreeing, found.older_revisions) == (32, 1)
    assert verify(spool, [shipped]).named == {"missing": ["requests r00003"]}


async def test_what_was_rejected_is_named(spool: Path, tmp_path: Path) -> None:
    mode = Mode(rejects=lambda record: id_of(record) in ("r00004", "e2"))
    export = await ship(spool, tmp_path / "sink.jsonl", mode)
    found = verify(spool, [export])
    assert found.named == {"rejected": ["requests r00004 (rejected)", "egress e2 (rejected)"]}


@pytest.mark.parametrize(
    "line",
    [
        b"{",
        b"[]",
        b'{"resourceLogs": [1]}',
        b'{"resourceLogs": {"a": 1}}',
        b"\xff\xfe",
        b"\x1f\x8b\x08 broken",
    ],
)
async def test_an_export_that_cannot_be_read_tells_nothing(spool: Path, shipped: Path, line: bytes) -> None:
    shipped.write_bytes(line)
    with pytest.raises(CannotTell) as caught:
        verify(spool, [shipped])
    assert str(shipped) in str(caught.value)


# ---- the commands ----


async def test_the_command_says_what_it_found(
    spool: Path, shipped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = ["--state-dir", str(spool.parent)]
    assert main(["usage", "verify", str(shipped), *ours]) == 0
    said = capsys.readouterr()
    assert "agreeing: 32 records" in said.out and said.err == ""
    edited(shipped, lambda records: records.remove(request(records, "r00007")))
    assert main(["usage", "verify", str(shipped), *ours]) == 1
    said = capsys.readouterr()
    assert "missing: 1 records" in said.err and "requests r00007" in said.err
    assert "do not agree" in said.out
    assert main(["usage", "verify", str(shipped) + ".no", *ours]) == 2
    assert main(["usage", "verify", str(shipped), "--state-dir", str(spool.parent / "no")]) == 2


async def test_the_backlog_is_told_without_a_gateway(
    spool: Path, shipped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with shipping(spool, "http://127.0.0.1:1", start=False) as here:
        await here.fill(4, "new")
    assert main(["usage", "backlog", "--state-dir", str(spool.parent)]) == 0
    said = capsys.readouterr().out
    assert "requests: 4 not shipped, the oldest" in said
    assert "egress: 0 not shipped\n" in said
    assert "rejected: 0" in said
    assert main(["usage", "backlog", "--state-dir", str(spool.parent / "no")]) == 2
