"""Keys that are made while the gateway runs: what is good when, what is kept, and what survives what."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.clocks import SetClock
from tests.support.ledger_rows import broken_disk
from weighbridge.config.errors import ConfigError
from weighbridge.config.roads import COMMERCIAL, LOCAL_8B, LOCAL_70B
from weighbridge.config.settings import AdminKey, ApiKey, AuthSettings
from weighbridge.observability.sqlite_file import DatabaseUnusable
from weighbridge.state.audit_verify import verify_file
from weighbridge.state.key_table import Admin, Caller
from weighbridge.state.keys import (
    AdminKeyFirst,
    KeyRevoked,
    KeyStore,
    Kind,
    LastAdminKey,
    NoSuchKey,
    RevokedHereOnly,
    Terms,
)
from weighbridge.state.store import StateStore, StateUnavailable

SECOND_NS = 1_000_000_000
HOUR_NS = 3_600 * SECOND_NS
ROOT = AuthSettings(admin_keys=(AdminKey(id="root", sha256="ab" * 32),))
AUDIT_KEY = bytes(32)


def digest(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def store(tmp_path: Path, clock: SetClock) -> Iterator[StateStore]:
    opened = StateStore.open(tmp_path / "state.sqlite3", clock, audit_key=AUDIT_KEY)
    yield opened
    opened.close()


@pytest.fixture
def keys(store: StateStore) -> KeyStore:
    return KeyStore(store, ROOT)


def good(keys: KeyStore, secret: str) -> Caller | Admin | None:
    """What a request with this key would find."""
    table = keys.table
    found = table.callers.get(digest(secret)) or table.admins.get(digest(secret))
    over = found is None or (found.until_ns is not None and keys.clock.wall_ns() >= found.until_ns)
    return None if over else found


def rows(store: StateStore) -> list[Any]:
    return store.rows("SELECT action, target, outcome FROM audit ORDER BY seq")


def test_a_key_is_good_at_once_and_after_a_restart(keys: KeyStore, store: StateStore) -> None:
    terms = Terms("data team", (LOCAL_8B, LOCAL_70B), 3, None)
    made, secret = keys.create("api", terms, "root", tenant="data", why="new team")
    wanted = Caller(made.id, "data", frozenset({COMMERCIAL}), 3)
    assert good(keys, secret) == wanted
    assert made.id.startswith("vk-") and secret.startswith("wb-") and len(secret) > 40
    assert good(KeyStore(store, ROOT), secret) == wanted
    assert keys.key("api", made.id) == made
    admin, admin_secret = keys.create("admin", Terms("ann", role="auditor"), "root")
    assert good(KeyStore(store, ROOT), admin_secret) == Admin(admin.id, "auditor")


def test_neither_the_key_nor_its_hash_is_told_anywhere_but_once(
    keys: KeyStore, tmp_path: Path, store: StateStore
) -> None:
    made, secret = keys.create("api", Terms("n"), "root", tenant="t")
    _, later = keys.rotate("api", made.id, HOUR_NS, "root")
    keys.revoke("api", made.id, "root")
    store.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    held = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert secret.encode() not in held and later.encode() not in held
    assert digest(secret) in held
    log = repr(store.rows("SELECT * FROM audit"))
    for one in (secret, later):
        assert digest(one).hex() not in log and repr(digest(one)) not in log
    assert digest(secret).hex() not in repr(keys.table)


def test_the_old_key_is_good_for_the_overlap_and_no_longer(keys: KeyStore, clock: SetClock) -> None:
    made, first = keys.create("api", Terms("n"), "root", tenant="t")
    rotated, second = keys.rotate("api", made.id, HOUR_NS, "root")
    assert good(keys, first) and good(keys, second)
    assert rotated.old_until_ns == clock.now_ns + HOUR_NS
    clock.now_ns += HOUR_NS - 1
    assert good(keys, first)
    clock.now_ns += 1
    assert good(keys, first) is None and good(keys, second)


def test_without_an_overlap_the_old_key_ends_at_once(keys: KeyStore, store: StateStore) -> None:
    made, first = keys.create("api", Terms("n"), "root", tenant="t")
    _, second = keys.rotate("api", made.id, 0, "root")
    for one in (keys, KeyStore(store, ROOT)):
        assert good(one, first) is None and good(one, second)


def test_a_second_rotation_never_makes_an_older_key_good_for_longer(
    keys: KeyStore, clock: SetClock, store: StateStore
) -> None:
    made, first = keys.create("api", Terms("n"), "root", tenant="t")
    _, second = keys.rotate("api", made.id, HOUR_NS, "root")
    keys.rotate("api", made.id, 10 * HOUR_NS, "root")
    path = Path(store.rows("PRAGMA database_list")[0][2])
    assert verify_file(path, [AUDIT_KEY]).fault == ""
    clock.now_ns += HOUR_NS
    for one in (keys, KeyStore(store, ROOT)):
        assert good(one, first) is None and good(one, second)


def test_a_rotation_without_overlap_ends_the_overlap_of_the_one_before(keys: KeyStore) -> None:
    made, first = keys.create("api", Terms("n"), "root", tenant="t")
    _, second = keys.rotate("api", made.id, HOUR_NS, "root")
    _, third = keys.rotate("api", made.id, 0, "root")
    assert [good(keys, one) is not None for one in (first, second, third)] == [False, False, True]


def test_a_revoked_key_ends_with_all_it_was_rotated_from_and_for_good(
    keys: KeyStore, store: StateStore
) -> None:
    made, first = keys.create("api", Terms("n"), "root", tenant="t")
    _, second = keys.rotate("api", made.id, HOUR_NS, "root")
    keys.revoke("api", made.id, "root")
    for one in (keys, KeyStore(store, ROOT)):
        assert good(one, first) is None and good(one, second) is None
        for change in (
            lambda one=one: one.revoke("api", made.id, "root"),
            lambda one=one: one.rotate("api", made.id, 0, "root"),
            lambda one=one: one.change("api", made.id, lambda key: Terms("m"), "root"),
        ):
            with pytest.raises(KeyRevoked):
                change()


def test_a_key_ends_at_its_time_and_a_later_one_brings_it_back(
    keys: KeyStore, clock: SetClock, store: StateStore
) -> None:
    made, secret = keys.create("api", Terms("n", expires_ns=clock.now_ns + HOUR_NS), "root", tenant="t")
    clock.now_ns += HOUR_NS - 1
    assert good(keys, secret)
    clock.now_ns += 1
    assert good(keys, secret) is None and good(KeyStore(store, ROOT), secret) is None
    keys.change("api", made.id, lambda key: Terms("n", expires_ns=clock.now_ns + HOUR_NS), "root")
    assert good(keys, secret) and good(KeyStore(store, ROOT), secret)


def test_a_change_is_what_the_next_request_finds(keys: KeyStore) -> None:
    made, secret = keys.create("api", Terms("n"), "root", tenant="t")
    keys.change("api", made.id, lambda key: Terms("n", (COMMERCIAL,), 1), "root")
    assert good(keys, secret) == Caller(made.id, "t", frozenset({LOCAL_8B, LOCAL_70B}), 1)
    keys.change("api", made.id, lambda key: Terms("n"), "root")
    assert good(keys, secret) == Caller(made.id, "t")


def test_the_two_kinds_share_no_address(keys: KeyStore) -> None:
    api, _ = keys.create("api", Terms("n"), "root", tenant="t")
    admin, _ = keys.create("admin", Terms("n", role="viewer"), "root")
    for kind, key_id in (("admin", api.id), ("api", admin.id), ("api", "vk-none")):
        with pytest.raises(NoSuchKey):
            keys.revoke(kind, key_id, "root")  # type: ignore[arg-type]
    assert [key.id for key in keys.keys("api", 0, 9)] == [api.id]
    assert [key.id for key in keys.keys("admin", 0, 9)] == [admin.id]


def test_pages_are_in_order(keys: KeyStore) -> None:
    made = [keys.create("api", Terms(f"n{n}"), "root", tenant="t")[0] for n in range(5)]
    first = keys.keys("api", 0, 2)
    assert first + keys.keys("api", first[-1].seq, 9) == made


# ---- what the settings hold ----


@pytest.mark.parametrize("revoked", [False, True])
@pytest.mark.parametrize("field", ["keys", "admin_keys"])
def test_a_key_that_the_settings_hold_as_well_is_refused(
    keys: KeyStore, store: StateStore, field: str, revoked: bool
) -> None:
    made, secret = keys.create("api", Terms("n"), "root", tenant="t")
    if revoked:
        keys.revoke("api", made.id, "root")
    both: dict[str, Any] = {field: [{"id": "one", "sha256": digest(secret).hex()}]}
    with pytest.raises(
        ConfigError, match=rf"auth\.{field}: the key one was made over the admin API"
    ) as caught:
        KeyStore(store, AuthSettings(**both))
    assert ("revoked" in str(caught.value)) is revoked
    assert digest(secret).hex() not in str(caught.value)


def test_an_id_that_the_settings_hold_as_well_is_refused(keys: KeyStore, store: StateStore) -> None:
    made, _ = keys.create("api", Terms("n"), "root", tenant="t")
    with pytest.raises(ConfigError, match=r"auth\.keys: the id"):
        KeyStore(store, AuthSettings(keys=(ApiKey(id=made.id, sha256="cd" * 32),)))


def test_keys_of_the_settings_are_in_the_same_table(store: StateStore) -> None:
    given = AuthSettings(
        keys=(ApiKey(id="one", sha256="cd" * 32, tenant="acme"),),
        admin_keys=(
            AdminKey(id="root", sha256="ab" * 32),
            AdminKey(id="eve", sha256="ef" * 32, role="viewer"),
        ),
    )
    table = KeyStore(store, given).table
    assert table.callers == {bytes.fromhex("cd" * 32): Caller("one", "acme")}
    assert set(table.admins.values()) == {Admin("root", "admin"), Admin("eve", "viewer")}


# ---- a gateway without keys ----


def test_the_last_key_that_ends_leaves_a_gateway_that_is_not_open(keys: KeyStore, store: StateStore) -> None:
    made, _ = keys.create("api", Terms("n"), "root", tenant="t")
    admin, _ = keys.create("admin", Terms("n", role="admin"), "root")
    keys.revoke("api", made.id, "root")
    keys.revoke("admin", admin.id, "root")
    table = KeyStore(store, AuthSettings()).table
    assert not table.callers and not table.admins
    assert table.keyed and table.admin_keyed


def test_the_first_key_of_all_is_an_admin_key_that_can_make_others(store: StateStore) -> None:
    keys = KeyStore(store, AuthSettings())
    assert not keys.table.keyed and not keys.table.admin_keyed
    for kind, terms in (("api", Terms("n")), ("admin", Terms("n", role="operator"))):
        with pytest.raises(AdminKeyFirst):
            keys.create(kind, terms, "loopback", tenant="t")  # type: ignore[arg-type]
    assert not keys.table.keyed and keys.keys("api", 0, 9) == [] and rows(store) == []
    keys.create("admin", Terms("n", role="admin"), "loopback")
    keys.create("api", Terms("n"), "ak", tenant="t")
    assert keys.table.keyed and keys.table.admin_keyed


def test_the_last_good_key_of_role_admin_stays(store: StateStore, clock: SetClock) -> None:
    keys = KeyStore(store, AuthSettings())
    first, _ = keys.create("admin", Terms("a", role="admin"), "loopback")
    other, _ = keys.create("admin", Terms("b", role="admin"), first.id)
    keys.create("admin", Terms("c", role="operator"), first.id)
    keys.change("admin", first.id, lambda key: Terms("a", role="operator"), other.id)
    keys.change("admin", first.id, lambda key: Terms("a", role="admin"), other.id)
    ends = Terms("b", role="admin", expires_ns=clock.now_ns + HOUR_NS)
    keys.change("admin", other.id, lambda key: ends, other.id)
    for change in (
        lambda: keys.change(
            "admin", first.id, lambda key: Terms("a", role="admin", expires_ns=clock.now_ns + 2), first.id
        ),
        lambda: keys.revoke("admin", first.id, first.id),
        lambda: keys.change("admin", first.id, lambda key: Terms("a", role="operator"), first.id),
        lambda: keys.change(
            "admin", first.id, lambda key: Terms("a", role="admin", expires_ns=clock.now_ns), first.id
        ),
    ):
        with pytest.raises(LastAdminKey):
            change()
    # One that the settings hold is one that is left.
    KeyStore(store, ROOT).revoke("admin", first.id, "root")


# ---- the disk, and others at the same time ----


def test_what_cannot_be_kept_does_not_happen(keys: KeyStore, store: StateStore) -> None:
    made, secret = keys.create("api", Terms("n"), "root", tenant="t")
    before = rows(store)
    with broken_disk():
        for change in (
            lambda: keys.create("api", Terms("m"), "root", tenant="t"),
            lambda: keys.change("api", made.id, lambda key: Terms("m", (LOCAL_8B,)), "root"),
            lambda: keys.rotate("api", made.id, 0, "root"),
        ):
            with pytest.raises(StateUnavailable):
                change()
    assert good(keys, secret) == Caller(made.id, "t") and len(keys.table.callers) == 1
    assert keys.keys("api", 0, 9) == [made] and rows(store) == before


def test_a_revocation_that_cannot_be_kept_is_in_force_all_the_same(keys: KeyStore, store: StateStore) -> None:
    made, secret = keys.create("api", Terms("n"), "root", tenant="t")
    other, kept = keys.create("api", Terms("o"), "root", tenant="t")
    with broken_disk(), pytest.raises(RevokedHereOnly):
        keys.revoke("api", made.id, "root")
    assert good(keys, secret) is None and good(keys, kept) == Caller(other.id, "t")
    assert keys.key("api", made.id).revoked_ns is None, "the disk knows nothing of it"
    keys.revoke("api", made.id, "root")
    assert keys.key("api", made.id).revoked_ns is not None and good(keys, secret) is None


def test_a_change_that_cannot_be_audited_does_not_happen(keys: KeyStore, store: StateStore) -> None:
    made, secret = keys.create("api", Terms("n"), "root", tenant="t")
    with pytest.raises(ValueError):
        keys.revoke("api", made.id, "root", why="\ud800")
    assert good(keys, secret) and keys.key("api", made.id) == made
    with store.writing() as conn:
        conn.execute("UPDATE audit SET chain = 'damaged'")
    with pytest.raises(StateUnavailable, match="audit log is damaged"):
        keys.rotate("api", made.id, 0, "root")
    assert good(keys, secret) and keys.key("api", made.id) == made


def test_every_change_leaves_its_row_in_the_log(keys: KeyStore, store: StateStore) -> None:
    made, _ = keys.create("api", Terms("n", parallel=2), "root", tenant="t", why="a")
    keys.change("api", made.id, lambda key: Terms("n", parallel=3), "root", why="b")
    keys.rotate("api", made.id, HOUR_NS, "root", why="c")
    keys.revoke("api", made.id, "root", why="d")
    found = store.rows('SELECT who, target, why, "before", "after" FROM audit ORDER BY seq')
    assert {row[:2] for row in found} == {("root", made.id)}
    assert [row[2] for row in found] == ["a", "b", "c", "d"]
    assert found[0][3] == "null" and '"tenant":"t"' in found[0][4]
    assert found[1][3:] == ('{"parallel":2}', '{"parallel":3}')


def test_a_store_that_cannot_be_read_is_no_store(store: StateStore) -> None:
    store.close()
    with pytest.raises(DatabaseUnusable, match="keys"):
        KeyStore(store, ROOT)


def test_changes_from_many_threads_leave_table_and_file_alike(store: StateStore) -> None:
    keys = KeyStore(store, ROOT)
    made, _ = keys.create("api", Terms("n"), "root", tenant="t")

    def work(n: int) -> None:
        for m in range(10):
            terms = Terms(f"n{n}.{m}", parallel=n * 100 + m + 1)
            keys.change("api", made.id, lambda key, terms=terms: terms, "root")  # type: ignore[misc]
            keys.rotate("api", made.id, 0, "root")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert keys.table.callers == KeyStore(store, ROOT).table.callers
    assert len(keys.table.callers) == 1


# ---- what was done by hand ----

BY_HAND = {
    "put in": "INSERT INTO keys SELECT 99, 'vk-0', kind, name, tenant, role, roads, parallel, created_ns, created_by, "
    "expires_ns, revoked_ns FROM keys WHERE kind = 'api' LIMIT 1",
    "taken out": "DELETE FROM keys WHERE kind = 'api'",
    "another key": "UPDATE key_hashes SET digest = randomblob(32) WHERE until_ns IS NULL AND key_id LIKE 'vk-%'",
    "one key more": "INSERT INTO key_hashes SELECT randomblob(32), id, NULL FROM keys WHERE kind = 'api'",
    "an old key good again": "UPDATE key_hashes SET until_ns = NULL",
    "a longer overlap": "UPDATE key_hashes SET until_ns = until_ns + 1",
    "revoked no longer": "UPDATE keys SET revoked_ns = NULL",
    "all roads": "UPDATE keys SET roads = NULL",
    "no limit": "UPDATE keys SET parallel = NULL",
    "no end": "UPDATE keys SET expires_ns = NULL",
    "a higher role": "UPDATE keys SET role = 'admin' WHERE kind = 'admin'",
    "another tenant": "UPDATE keys SET tenant = 'other' WHERE kind = 'api'",
}


@pytest.mark.parametrize("statement", BY_HAND.values(), ids=BY_HAND)
def test_a_key_that_was_changed_by_hand_is_not_as_the_log_says(
    keys: KeyStore, store: StateStore, tmp_path: Path, clock: SetClock, statement: str
) -> None:
    path = tmp_path / "state.sqlite3"
    ends = clock.now_ns + HOUR_NS
    made, _ = keys.create("api", Terms("n", (LOCAL_8B,), 2, ends), "root", tenant="t")
    keys.create("admin", Terms("n", role="viewer"), "root")
    keys.change("api", made.id, lambda key: Terms("m", (LOCAL_8B, LOCAL_70B), 3, ends), "root")
    keys.rotate("api", made.id, HOUR_NS, "root")
    gone, _ = keys.create("api", Terms("gone"), "root", tenant="t")
    keys.revoke("api", gone.id, "root")
    assert verify_file(path, [AUDIT_KEY]).fault == ""
    with store.writing() as conn:
        conn.execute(statement)
    assert "is not as the audit log says" in verify_file(path, [AUDIT_KEY]).fault


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["create", "change", "rotate", "revoke", "wait"]),
        st.integers(0, 4),
        st.integers(0, 3),
        st.booleans(),
    ),
    max_size=12,
)
_folders = itertools.count()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_whatever_is_done_a_restart_finds_the_same_keys_good(tmp_path: Path, steps: list[Any]) -> None:
    clock = SetClock()
    store = StateStore.open(tmp_path / f"{next(_folders)}.sqlite3", clock, audit_key=AUDIT_KEY)
    keys = KeyStore(store, ROOT)
    made: list[tuple[Kind, str]] = []
    secrets: list[str] = []
    for what, which, hours, admin in steps:
        kind, key_id = made[which % len(made)] if made else ("api", "vk-none")
        ends = None if hours == 0 else clock.now_ns + hours * HOUR_NS
        terms = Terms("n", expires_ns=ends, role="viewer" if (kind if made else "api") == "admin" else None)
        try:
            if what == "create":
                kind = "admin" if admin else "api"
                role: Any = "viewer" if admin else None
                key, secret = keys.create(
                    kind, Terms("n", expires_ns=ends, role=role), "root", tenant="" if admin else "t"
                )
                made.append((kind, key.id))
                secrets.append(secret)
            elif what == "change":
                keys.change(kind, key_id, lambda key, terms=terms: terms, "root")
            elif what == "rotate":
                secrets.append(keys.rotate(kind, key_id, hours * HOUR_NS, "root")[1])
            elif what == "revoke":
                keys.revoke(kind, key_id, "root")
            else:
                clock.now_ns += hours * HOUR_NS
        except (NoSuchKey, KeyRevoked):
            continue
        again = KeyStore(store, ROOT)
        assert [good(keys, one) for one in secrets] == [good(again, one) for one in secrets]
    path = Path(store.rows("PRAGMA database_list")[0][2])
    assert verify_file(path, [AUDIT_KEY]).fault == ""
    store.close()
