"""Proving the chain: whatever is done to one row shows, at that row."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support import ledger_rows as rows
from tests.support.old_ledger import old_ledger
from weighbridge.config.clock import SystemClock
from weighbridge.observability import egress_chain
from weighbridge.observability.egress_chain import COLUMNS, key_id
from weighbridge.observability.egress_verify import CannotTell, Verdict, verify_file
from weighbridge.observability.ledger import Ledger

KEY, OLD_KEY = rows.CHAIN_KEY, b"the key before it, also 32 bytes"
COUNT = 12


def verdict(spool: Path, pinned: str | None = None, keys: tuple[bytes, ...] = (KEY, OLD_KEY)) -> Verdict:
    return verify_file(spool, keys, pinned)


async def write(spool: Path, names: list[str], key: bytes = KEY) -> None:
    ledger = Ledger.open(spool, clock=SystemClock(), chain_key=key)
    for number, name in enumerate(names):
        await ledger.record_egress(rows.egress(name, f"r-{name}", at_ns=100 + number, body_bytes=number))
    await ledger.close()


@contextmanager
def by_hand(spool: Path) -> Iterator[sqlite3.Connection]:
    """A hand in the file, without a gateway."""
    with closing(sqlite3.connect(spool, isolation_level=None)) as conn:
        yield conn


@pytest.fixture
async def chain(spool: Path) -> Path:
    """`COUNT` rows, the first third signed with the key before."""
    await write(spool, [f"a{n}" for n in range(COUNT // 3)], OLD_KEY)
    await write(spool, [f"b{n}" for n in range(COUNT - COUNT // 3)])
    return spool


async def test_a_whole_chain(chain: Path) -> None:
    found = verdict(chain)
    assert (found.rows, found.adopted, found.bad_seq, found.fault) == (COUNT, 0, None, "")
    assert (found.first_ns, found.last_ns) == (100, 100 + COUNT - COUNT // 3 - 1)
    assert found.head == rows.egresses(chain)[-1]["chain"]
    assert found.keys == {key_id(OLD_KEY): COUNT // 3, key_id(KEY): COUNT - COUNT // 3}


def other_value(column: str, value: Any) -> st.SearchStrategy[Any]:
    """Anything else that SQLite takes in this column, the same characters as bytes included."""
    if isinstance(value, int):
        return st.one_of(
            st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.binary(), st.text()
        ).filter(lambda new: new != value)
    return st.one_of(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.just(value.encode()),
        st.just(value + "\0"),
        st.integers(-(2**63), 2**63 - 1),
        st.binary(),
    ).filter(lambda new: new != value)


PROPERTY = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@PROPERTY
@given(data=st.data())
def test_any_change_of_any_row_shows(chain: Path, data: st.DataObject) -> None:
    seq = data.draw(st.integers(1, COUNT), "seq")
    column = data.draw(st.sampled_from([name for name in COLUMNS if name != "seq"]), "column")
    changed = chain.with_name("changed.sqlite3")
    shutil.copy(chain, changed)
    with by_hand(changed) as conn:
        (value,) = conn.execute(f"SELECT {column} FROM egress WHERE seq = ?", (seq,)).fetchone()
        new = data.draw(other_value(column, value), "new")
        try:
            conn.execute(f"UPDATE egress SET {column} = ? WHERE seq = ?", (new, seq))
        except sqlite3.IntegrityError:
            return
        (kept,) = conn.execute(f"SELECT {column} FROM egress WHERE seq = ?", (seq,)).fetchone()
    if type(kept) is type(value) and kept == value:
        return  # SQLite turned it into what was there
    found = verdict(changed)
    assert (found.bad_seq, found.rows) == (seq, seq - 1)
    assert found.fault


@PROPERTY
@given(data=st.data())
def test_taking_out_swapping_and_putting_in_show(chain: Path, data: st.DataObject) -> None:
    changed = chain.with_name("changed.sqlite3")
    shutil.copy(chain, changed)
    what = data.draw(st.sampled_from(["take out", "take out and close up", "swap", "put in", "copy"]))
    first = data.draw(st.integers(1, COUNT - 1), "first")
    second = data.draw(st.integers(first + 1, COUNT), "second")
    with by_hand(changed) as conn:
        match what:
            case "take out":
                conn.execute("DELETE FROM egress WHERE seq = ?", (first,))
            case "take out and close up":
                conn.execute("DELETE FROM egress WHERE seq = ?", (first,))
                conn.execute("UPDATE egress SET seq = -seq WHERE seq > ?", (first,))
                conn.execute("UPDATE egress SET seq = -seq - 1 WHERE seq < 0")
            case "swap":
                conn.execute("UPDATE egress SET seq = -1 WHERE seq = ?", (first,))
                conn.execute("UPDATE egress SET seq = ? WHERE seq = ?", (first, second))
                conn.execute("UPDATE egress SET seq = ? WHERE seq = -1", (second,))
            case _:
                conn.execute("UPDATE egress SET seq = -seq WHERE seq >= ?", (first,))
                conn.execute("UPDATE egress SET seq = -seq + 1 WHERE seq < 0")
                names = ", ".join(COLUMNS[5:])
                source = first + 1 if what == "put in" else max(1, first - 1)
                conn.execute(
                    f"INSERT INTO egress (seq, form, key_id, adopted, egress_id, {names}) "
                    f"SELECT ?, form, key_id, adopted, 'put in', {names} FROM egress WHERE seq = ?",
                    (first, source if source != first else first + 1),
                )
    found = verdict(changed)
    assert (found.bad_seq, found.rows) == (first, first - 1)


async def test_a_missing_tail_shows_only_against_a_head(chain: Path) -> None:
    head = verdict(chain).head
    with by_hand(chain) as conn:
        conn.execute("DELETE FROM egress WHERE seq > ?", (COUNT - 3,))
    assert verdict(chain).bad_seq is None
    found = verdict(chain, head)
    assert (found.bad_seq, found.pinned_at) == (COUNT - 2, None)
    assert "pinned head" in found.fault


async def test_a_pinned_head_is_found_in_the_middle_and_at_the_start(chain: Path) -> None:
    head = verdict(chain).head
    await write(chain, ["later", "later still"])
    found = verdict(chain, head)
    assert (found.bad_seq, found.pinned_at, found.rows) == (None, COUNT, COUNT + 2)
    assert verdict(chain, "00" * 32).pinned_at == 0


async def test_a_chain_made_anew_shows_against_a_head(chain: Path, tmp_path: Path) -> None:
    head = verdict(chain).head
    again = tmp_path / "again.sqlite3"
    await write(again, [f"b{n}" for n in range(COUNT + 5)])
    assert verdict(again).bad_seq is None
    assert verdict(again, head).bad_seq == COUNT + 6


async def test_a_row_signed_with_an_unknown_key(chain: Path) -> None:
    found = verdict(chain, keys=(KEY,))
    assert found.bad_seq == 1
    assert key_id(OLD_KEY) in found.fault
    assert verdict(chain, keys=(OLD_KEY,)).bad_seq == COUNT // 3 + 1


async def test_a_key_under_anothers_name_proves_nothing(chain: Path) -> None:
    with by_hand(chain) as conn:
        conn.execute("UPDATE egress SET key_id = ?", (key_id(KEY),))
    assert verdict(chain).bad_seq == 1


async def test_a_newer_row_cannot_pass_for_an_adopted_one(spool: Path) -> None:
    """Even signed with the right key: only what stood before the chain began is older than it."""
    old_ledger(spool, [rows.egress("old")])
    await write(spool, ["new"])
    with by_hand(spool) as conn:
        tip = egress_chain.read_tip(conn)
        names = ", ".join(COLUMNS[4:-1])
        held = conn.execute(f"SELECT {names} FROM egress WHERE seq = 2").fetchone()
        row, _ = egress_chain._tie(("late", *held[1:]), tip, KEY, adopted=True)
        values = msgspec.structs.astuple(row)
        conn.execute(f"INSERT INTO egress VALUES ({', '.join('?' * len(values))})", values)
    found = verdict(spool)
    assert (found.bad_seq, found.adopted) == (3, 1)


async def test_text_that_is_no_utf8_is_a_changed_row(chain: Path) -> None:
    with by_hand(chain) as conn:
        conn.execute("UPDATE egress SET reason = CAST(x'ff41' AS TEXT) WHERE seq = 5")
    assert verdict(chain).bad_seq == 5


async def test_a_row_of_a_form_nobody_knows(chain: Path) -> None:
    with by_hand(chain) as conn:
        conn.execute("UPDATE egress SET form = 2 WHERE seq = 7")
    found = verdict(chain)
    assert (found.bad_seq, "form 2" in found.fault) == (7, True)


async def test_a_damaged_file_is_broken(spool: Path) -> None:
    await write(spool, [f"e{n}" for n in range(200)])
    whole = bytearray(spool.read_bytes())
    with by_hand(spool) as conn:
        (page,) = conn.execute("PRAGMA page_size").fetchone()
        (root,) = conn.execute("SELECT rootpage FROM sqlite_master WHERE name = 'egress'").fetchone()
    whole[(root - 1) * page : root * page] = b"\xff" * page
    spool.write_bytes(whole)
    found = verdict(spool)
    assert found.bad_seq == 1
    assert "damaged" in found.fault


async def test_beside_a_ledger_that_is_written(spool: Path) -> None:
    ledger = Ledger.open(spool, clock=SystemClock(), chain_key=KEY)
    for n in range(5):
        await ledger.record_egress(rows.egress(f"e{n}"))
        assert verdict(spool).rows == n + 1
    await ledger.close()


async def test_a_file_that_is_older_and_has_its_chain_can_be_proved(chain: Path) -> None:
    with by_hand(chain) as conn:
        conn.execute("PRAGMA user_version=2")
    assert verdict(chain).fault == ""


def test_what_cannot_be_told(tmp_path: Path) -> None:
    with pytest.raises(CannotTell, match="cannot be read"):
        verdict(tmp_path / "nothing.sqlite3")
    assert list(tmp_path.iterdir()) == []
    no_database = tmp_path / "text"
    no_database.write_bytes(b"not a database " * 100)
    with pytest.raises(CannotTell, match="cannot be read"):
        verdict(no_database)
    old = tmp_path / "old.sqlite3"
    old_ledger(old, [rows.egress()])
    with pytest.raises(CannotTell, match="before there was a chain"):
        verdict(old)
    with by_hand(old) as conn:
        conn.execute("PRAGMA user_version=99")
    with pytest.raises(CannotTell, match="newer version"):
        verdict(old)
