"""The audit log: every change of the state leaves a row in its own transaction, and no change of a row stays unseen."""

from __future__ import annotations

import hashlib
import hmac
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.clocks import SetClock
from tests.support.ledger_rows import broken_disk
from weighbridge.observability.chain_verify import CannotTell
from weighbridge.state import audit as audit_module
from weighbridge.state.acting import Acting, acting
from weighbridge.state.audit import REFUSALS_A_KEY, REFUSALS_IN_ALL, AuditLog, value_of
from weighbridge.state.audit_chain import SIGNED, AuditRow, Deed, brief
from weighbridge.state.audit_verify import verify_file
from weighbridge.state.policy_record import NewVersion, PolicyRecord
from weighbridge.state.store import StateStore, StateUnavailable
from weighbridge.state.switch import EgressSwitch

KEY, OLD_KEY = bytes(range(32)), bytes(32)
HOUR_NS = 3_600 * 1_000_000_000


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite3"


@pytest.fixture
def store(path: Path, clock: SetClock) -> Iterator[StateStore]:
    opened = StateStore.open(path, clock, audit_key=KEY)
    yield opened
    opened.close()


@pytest.fixture
def log(store: StateStore) -> AuditLog:
    return AuditLog(store)


def note(store: StateStore, target: str, who: str = "root", action: str = "key.create") -> None:
    with acting(Acting(action, "admin", "r-1")), store.writing() as conn:
        store.audited(conn, store.clock.wall_ns(), Deed(who, target, None, {"n": 1}, "why"))


def version(name: str, **content: Any) -> NewVersion:
    return NewVersion(f"{name}@1", "base@1", {}, {}, content)


CHANGES: dict[str, Callable[[StateStore], Any]] = {
    "overlay": lambda store: store.set_overlay({"bounds": {"local_8b": 0.4}}, "root", "why"),
    "admin's policy": lambda store: PolicyRecord(store).from_admin(
        version("p", egress="never"), "root", "why"
    ),
    "proposal": lambda store: PolicyRecord(store).propose("root", "why", "overlay", "a@1", "b@1", {}, {}),
    "switch": lambda store: EgressSwitch(store, None).set("never", "root", "why"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_change_leaves_one_row(store: StateStore, log: AuditLog, change: Callable[..., Any]) -> None:
    with acting(Acting("thing.do", "operator", "r-7")):
        change(store)
    (row,) = log.page(0, 9)
    assert (row.seq, row.who, row.role, row.action, row.outcome, row.why, row.request_id) == (
        1,
        "root",
        "operator",
        "thing.do",
        "done",
        "why",
        "r-7",
    )
    assert row.at_ns == store.clock.wall_ns() and row.before != row.after


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_cannot_be_audited_does_not_happen(store: StateStore, change: Callable[..., Any]) -> None:
    note(store, "first")
    with store.writing() as conn:
        conn.execute("UPDATE audit SET chain = 'x'")
    before = list(store._conn.iterdump())
    with pytest.raises(StateUnavailable):
        change(store)
    assert list(store._conn.iterdump()) == before


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_does_not_happen_leaves_no_row(
    store: StateStore, log: AuditLog, change: Callable[..., Any]
) -> None:
    with broken_disk(), pytest.raises(StateUnavailable):
        change(store)
    assert log.page(0, 9) == []


def test_before_and_after_say_what_has_changed(store: StateStore, log: AuditLog) -> None:
    record = PolicyRecord(store)
    record.from_file(version("p", egress="masked", bounds={"local_8b": 0.4}, tasks={"t": "x" * 2000}))
    record.from_admin(
        version("q", egress="masked", bounds={"local_8b": 0.3}, tasks={"t": "y" * 2000}), "root", "w"
    )
    first, second = log.page(0, 9)
    assert (first.who, first.role, first.action, first.before) == ("", "", "policy.file", "null")
    before, after = value_of(second.before), value_of(second.after)
    assert (before["version"], after["version"]) == ("p@1", "q@1")
    assert (before["bounds"], after["bounds"]) == ({"local_8b": 0.4}, {"local_8b": 0.3})
    assert "egress" not in before and "egress" not in after
    assert set(before["tasks"]) == {"sha256", "bytes"} and before["tasks"] != after["tasks"]
    assert "xxx" not in second.before and "yyy" not in second.after
    switch = EgressSwitch(store, None)
    switch.set("never", "root", "w")
    switch.set("policy", "root", "w")
    assert [(row.before, row.after) for row in log.page(2, 9)] == [
        ('{"egress":"policy"}', '{"egress":"never"}'),
        ('{"egress":"never"}', '{"egress":"policy"}'),
    ]


def test_brief_holds_the_differences_alone() -> None:
    assert brief({"a": 1, "b": 2, "c": 3}, {"b": 2, "c": 4, "d": 5}) == ({"a": 1, "c": 3}, {"c": 4, "d": 5})


def test_a_row_can_be_proved_with_the_standard_library_alone(store: StateStore, log: AuditLog) -> None:
    note(store, "첫째")
    note(store, "둘째")
    link = bytes(32)
    for row in log.page(0, 9):
        values = [getattr(row, name) for name in SIGNED]
        signed = json.dumps(values, ensure_ascii=False, separators=(",", ":")).encode()
        link = hmac.new(KEY, link + signed, hashlib.sha256).digest()
        assert row.chain == link.hex()
    assert log.head() == (2, link)


def test_pages_by_key_action_and_time(store: StateStore, log: AuditLog, clock: SetClock) -> None:
    start = clock.now_ns
    for n in range(6):
        clock.now_ns = start + n
        note(store, f"t{n}", who="ann" if n % 2 else "bob", action="key.create" if n < 3 else "key.revoke")

    def found(after: int = 0, limit: int = 9, **asked: Any) -> list[int]:
        return [row.seq for row in log.page(after, limit, **asked)]

    assert found() == [1, 2, 3, 4, 5, 6]
    assert found(2, 3) == [3, 4, 5]
    assert found(who="ann") == [2, 4, 6]
    assert found(who="ann", action="key.create") == [2]
    assert found(between_ns=(start + 1, start + 3)) == [2, 3]
    assert found(who="nobody") == []


# ---- proving it ----


def by_hand(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as conn:
        for statement in statements:
            conn.execute(statement)


def five(store: StateStore) -> None:
    for n in range(1, 6):
        note(store, f"t{n}")


def test_a_whole_log(store: StateStore, log: AuditLog, path: Path) -> None:
    assert (verify_file(path, [KEY]).rows, verify_file(path, [KEY]).bad_seq) == (0, None)
    five(store)
    verdict = verify_file(path, [KEY])
    assert (verdict.rows, verdict.bad_seq, verdict.head) == (5, None, log.head().link.hex())


COLUMNS = [name for name in SIGNED if name not in ("seq", "form", "key_id", "at_ns")]


@pytest.mark.parametrize("column", COLUMNS)
def test_a_changed_value_is_found_at_its_row(store: StateStore, path: Path, column: str) -> None:
    five(store)
    by_hand(path, f'UPDATE audit SET "{column}" = "{column}" || \' \' WHERE seq = 3')
    assert verify_file(path, [KEY]).bad_seq == 3


@pytest.mark.parametrize(
    ("statements", "bad"),
    [
        (("UPDATE audit SET at_ns = at_ns + 1 WHERE seq = 1",), 1),
        (("UPDATE audit SET form = 2 WHERE seq = 4",), 4),
        (("UPDATE audit SET key_id = '00000000' WHERE seq = 5",), 5),
        (("DELETE FROM audit WHERE seq = 2",), 2),
        (("DELETE FROM audit WHERE seq = 2", "UPDATE audit SET seq = seq - 1 WHERE seq > 2"), 2),
        (("UPDATE audit SET outcome = 'done', who = who WHERE seq = 9",), None),
        (("UPDATE audit SET chain = substr(chain, 1, 62) || '00' WHERE seq = 3",), 3),
        (("INSERT INTO audit SELECT 6, form, key_id, at_ns, who, role, action, target, outcome, why, "
          '"before", "after", request_id, chain FROM audit WHERE seq = 5',), 6),
    ],
)  # fmt: skip
def test_what_was_done_by_hand_is_found_at_its_row(
    store: StateStore, path: Path, statements: tuple[str, ...], bad: int | None
) -> None:
    five(store)
    by_hand(path, *statements)
    assert verify_file(path, [KEY]).bad_seq == bad


def test_a_row_that_is_gone_is_called_missing(store: StateStore, path: Path) -> None:
    five(store)
    by_hand(path, "DELETE FROM audit WHERE seq = 2")
    assert verify_file(path, [KEY]).fault == "is missing"


def test_a_cut_tail_is_told_against_a_head_that_was_noted(store: StateStore, path: Path) -> None:
    five(store)
    head = verify_file(path, [KEY]).head
    by_hand(path, "DELETE FROM audit WHERE seq > 3")
    assert verify_file(path, [KEY]).bad_seq is None
    assert verify_file(path, [KEY], head).bad_seq == 4
    whole = verify_file(path, [KEY], verify_file(path, [KEY]).head)
    assert (whole.bad_seq, whole.pinned_at) == (None, 3)


def test_another_key_proves_nothing(store: StateStore, path: Path) -> None:
    five(store)
    assert verify_file(path, [OLD_KEY]).bad_seq == 1


def test_old_rows_are_proved_by_the_old_key(path: Path, clock: SetClock) -> None:
    for key in (OLD_KEY, KEY):
        with closing(StateStore.open(path, clock, audit_key=key)) as store:
            note(store, "t")
    assert verify_file(path, [KEY, OLD_KEY]).bad_seq is None
    assert verify_file(path, [KEY]).bad_seq == 1


def test_what_cannot_be_read_is_not_called_whole(path: Path, tmp_path: Path, store: StateStore) -> None:
    with pytest.raises(CannotTell):
        verify_file(tmp_path / "none.sqlite3", [KEY])
    by_hand(path, "PRAGMA user_version=99")
    with pytest.raises(CannotTell, match="newer"):
        verify_file(path, [KEY])
    by_hand(path, "DROP TABLE audit", "PRAGMA user_version=3")
    with pytest.raises(CannotTell, match="before there was an audit log"):
        verify_file(path, [KEY])


def test_a_start_tells_the_head(path: Path, clock: SetClock, caplog: pytest.LogCaptureFixture) -> None:
    with closing(StateStore.open(path, clock, audit_key=KEY)) as store:
        note(store, "t")
    with caplog.at_level("INFO"), closing(StateStore.open(path, clock, audit_key=KEY)) as store:
        assert f"audit log: 1 rows, head {AuditLog(store).head().link.hex()}" in caplog.messages
        by_hand(path, "UPDATE audit SET chain = 'x'")
    with closing(StateStore.open(path, clock, audit_key=KEY)):
        assert "damaged" in caplog.text


# ---- refused attempts ----


def attempt(log: AuditLog, who: str = "eve") -> bool:
    counts = log.counts(who)
    if counts:
        with acting(Acting("key.create", "viewer", "r-1")):
            log.refused(who, "/admin/v1/keys", "admin")
    return counts


def test_a_refused_attempt_is_a_row(log: AuditLog) -> None:
    assert attempt(log)
    (row,) = log.page(0, 9)
    assert (row.who, row.role, row.action, row.target, row.outcome) == (
        "eve",
        "viewer",
        "key.create",
        "/admin/v1/keys",
        "refused",
    )
    assert value_of(row.after) == {"needs": "admin"}


def test_nobody_fills_the_disk_with_refusals_and_none_goes_uncounted(log: AuditLog, clock: SetClock) -> None:
    made = [attempt(log) for _ in range(1000)]
    assert sum(made) == REFUSALS_A_KEY == len(log.page(0, 999))
    clock.now_ns += HOUR_NS
    assert attempt(log)
    last: AuditRow = log.page(0, 999)[-1]
    assert value_of(last.after) == {"needs": "admin", "not_recorded_before": 1000 - REFUSALS_A_KEY}
    clock.now_ns += HOUR_NS
    for n in range(500):
        attempt(log, f"k{n}")
    assert len(log.page(0, 999)) == REFUSALS_A_KEY + 1 + REFUSALS_IN_ALL


def test_the_bounds_do_not_wear_off_within_the_hour(log: AuditLog, clock: SetClock) -> None:
    clock.now_ns -= clock.now_ns % audit_module._HOUR_NS
    for _ in range(60):
        attempt(log)
        clock.now_ns += HOUR_NS // 60
    assert len(log.page(0, 999)) == REFUSALS_A_KEY
