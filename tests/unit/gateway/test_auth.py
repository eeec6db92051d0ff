"""Who may call, and what they are told when they may not."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.support.clocks import SetClock
from weighbridge.config.errors import ApiError
from weighbridge.config.settings import AdminKey, ApiKey, AuthSettings
from weighbridge.gateway.auth import Authenticator, Caller, header_map, is_local
from weighbridge.state.keys import KeyStore, Terms
from weighbridge.state.store import StateStore

KEY, OTHER, ADMIN = "wb-first", "wb-second", "wb-admin"
LOCAL = ("127.0.0.1", 4000)
REMOTE = ("192.0.2.7", 4000)
HOST = {b"host": b"127.0.0.1:8080"}


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def bearer(key: str, scheme: str = "Bearer") -> dict[bytes, bytes]:
    return HOST | {b"authorization": f"{scheme} {key}".encode()}


API_KEYS = (
    ApiKey(id="one", sha256=digest(KEY)),
    ApiKey(id="two", sha256=digest(OTHER).upper(), tenant="acme"),
)
KEYED = Authenticator(AuthSettings(keys=API_KEYS, admin_keys=(AdminKey(id="root", sha256=digest(ADMIN)),)))
KEYLESS = Authenticator(AuthSettings())


def refusal(call) -> ApiError:  # type: ignore[no-untyped-def]
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value


def test_a_key_is_known_by_its_id_and_tenant() -> None:
    assert KEYED.api(bearer(KEY), REMOTE) == Caller("one", "default")
    assert KEYED.api(bearer(OTHER), REMOTE) == Caller("two", "acme")
    assert KEYED.api(bearer(KEY, "bearer"), REMOTE).key_id == "one"
    assert KEYED.admin(bearer(ADMIN), REMOTE) == "root"


@pytest.mark.parametrize(
    "headers",
    [
        HOST,
        bearer("wb-wrong"),
        bearer(""),
        bearer(KEY, "Basic"),
        bearer(KEY + "x"),
        bearer("x" * 5000),
        bearer(digest(KEY)),
        HOST | {b"authorization": KEY.encode()},
        HOST | {b"authorization": b"Bearer \xff\xfe"},
    ],
)
@pytest.mark.parametrize("peer", [LOCAL, REMOTE])
def test_anything_else_is_401(headers: dict[bytes, bytes], peer: tuple[str, int]) -> None:
    error = refusal(lambda: KEYED.api(headers, peer))
    assert (error.status, error.code, error.type) == (401, "invalid_api_key", "invalid_request_error")
    assert "wb-" not in error.message
    assert refusal(lambda: KEYED.admin(headers, peer)).status == 401


def test_the_two_kinds_of_key_are_not_interchangeable() -> None:
    assert refusal(lambda: KEYED.api(bearer(ADMIN), LOCAL)).status == 401
    assert refusal(lambda: KEYED.admin(bearer(KEY), LOCAL)).status == 401


def test_api_keys_without_an_admin_key_close_the_admin_routes() -> None:
    auth = Authenticator(AuthSettings(keys=API_KEYS))
    for headers in (HOST, bearer(KEY)):
        error = refusal(lambda headers=headers: auth.admin(headers, LOCAL))  # type: ignore[misc]
        assert (error.status, error.code) == (403, "admin_key_not_configured")


def test_an_admin_key_alone_leaves_the_api_to_this_machine() -> None:
    auth = Authenticator(AuthSettings(admin_keys=(AdminKey(id="root", sha256=digest(ADMIN)),)))
    assert auth.api(HOST, LOCAL).key_id == "loopback"
    assert refusal(lambda: auth.api(bearer(ADMIN), REMOTE)).status == 403
    assert refusal(lambda: auth.admin(HOST, LOCAL)).status == 401


def test_without_keys_this_machine_may_do_everything_and_others_nothing() -> None:
    assert KEYLESS.api(bearer("anything"), LOCAL) == Caller("loopback", "default")
    assert KEYLESS.admin(HOST, LOCAL) == "loopback"
    KEYLESS.metrics(HOST, LOCAL)
    for call in (KEYLESS.api, KEYLESS.admin, KEYLESS.metrics):
        assert refusal(lambda call=call: call(HOST, REMOTE)).status == 403  # type: ignore[misc]


def test_metrics_take_either_key_from_elsewhere() -> None:
    KEYED.metrics(HOST, LOCAL)
    KEYED.metrics(bearer(KEY), REMOTE)
    KEYED.metrics(bearer(ADMIN), REMOTE)
    assert refusal(lambda: KEYED.metrics(HOST, REMOTE)).status == 401


@pytest.mark.parametrize(
    ("host", "peer", "more", "local"),
    [
        (b"127.0.0.1:8080", "127.0.0.1", {}, True),
        (b"LOCALHOST", "127.0.0.1", {}, True),
        (b"[::1]:8080", "::1", {}, True),
        (b"127.8.9.1", "127.3.2.1", {}, True),
        (b"localhost:1", "::ffff:127.0.0.1", {}, True),
        (b"localhost", "127.0.0.1", {b"origin": b"http://localhost:3000"}, True),
        (b"localhost", "127.0.0.1", {b"origin": b"http://[::1]:3000"}, True),
        # Another machine, whatever it says.
        (b"localhost", "192.0.2.7", {}, False),
        (b"localhost", "::ffff:192.0.2.7", {}, False),
        # A page that rebound its name to 127.0.0.1.
        (b"evil.example", "127.0.0.1", {}, False),
        (b"127.0.0.1.evil.example", "127.0.0.1", {}, False),
        (b"localhost.evil.example", "127.0.0.1", {}, False),
        (b"", "127.0.0.1", {}, False),
        # A page that posts to 127.0.0.1 openly.
        (b"localhost", "127.0.0.1", {b"origin": b"https://evil.example"}, False),
        (b"localhost", "127.0.0.1", {b"origin": b"https://localhost.evil.example"}, False),
        (b"localhost", "127.0.0.1", {b"origin": b"null"}, False),
        (b"localhost", "127.0.0.1", {b"origin": b"http://[::1"}, False),
        # A proxy on this machine that speaks for somebody else.
        (b"localhost", "127.0.0.1", {b"x-forwarded-for": b"127.0.0.1"}, False),
        (b"localhost", "127.0.0.1", {b"forwarded": b"for=127.0.0.1"}, False),
        (b"localhost", "127.0.0.1", {b"x_forwarded_for": b"127.0.0.1"}, False),
        (b"localhost", "127.0.0.1", {b"x-forwarded-proto": b"https"}, False),
        (b"localhost", "127.0.0.1", {b"via": b"1.1 proxy"}, False),
        (b"localhost", "127.0.0.1", {b"cf-connecting-ip": b"127.0.0.1"}, False),
        (b"localhost", "127.0.0.1", {b"x_real_ip": b"127.0.0.1"}, False),
        # A browser that says whose page it is.
        (b"localhost", "127.0.0.1", {b"sec-fetch-site": b"Cross-Site"}, False),
        (b"localhost", "127.0.0.1", {b"sec-fetch-site": b"same-origin"}, True),
        (b"localhost", "127.0.0.1", {b"sec-fetch-site": b"none"}, True),
    ],
)
def test_what_counts_as_this_machine(host: bytes, peer: str, more: dict[bytes, bytes], local: bool) -> None:
    assert is_local({b"host": host} | more, (peer, 4000)) is local


def test_no_peer_and_no_host_are_not_local() -> None:
    assert not is_local(HOST, None)
    assert not is_local({}, LOCAL)


@pytest.mark.parametrize(
    "more",
    [
        [(b"host", b"localhost")],
        [(b"host", b"evil.example")],
        [(b"origin", b"http://localhost/"), (b"origin", b"http://evil.example")],
        [(b"origin", b"http://evil.example"), (b"origin", b"http://localhost")],
        [(b"sec-fetch-site", b"cross-site"), (b"sec-fetch-site", b"same-origin")],
    ],
)
def test_a_header_that_comes_twice_is_not_taken_for_its_better_half(more: list[tuple[bytes, bytes]]) -> None:
    for raw in ([(b"host", b"localhost"), *more], [*more, (b"host", b"localhost")]):
        assert not is_local(header_map(raw), LOCAL)
    assert is_local(header_map([(b"host", b"localhost"), (b"accept", b"a"), (b"accept", b"b")]), LOCAL)


def test_two_keys_in_one_request_are_none() -> None:
    for first, second in ((KEY, OTHER), ("wb-wrong", KEY)):
        raw = [(b"authorization", f"Bearer {key}".encode()) for key in (first, second)]
        assert refusal(lambda raw=raw: KEYED.api(header_map(raw), REMOTE)).status == 401  # type: ignore[misc]


# ---- keys that are made while it runs ----


def keyed_store(tmp_path: Path, settings: AuthSettings) -> tuple[KeyStore, SetClock]:
    clock = SetClock()
    return KeyStore(StateStore.open(tmp_path / "state.sqlite3", clock), settings), clock


def test_both_sorts_of_keys_go_on_beside_each_other(tmp_path: Path) -> None:
    settings = AuthSettings(keys=API_KEYS, admin_keys=(AdminKey(id="root", sha256=digest(ADMIN)),))
    keys, clock = keyed_store(tmp_path, settings)
    auth = Authenticator(settings, keys)
    made, secret = keys.create("api", Terms("n", expires_ns=clock.now_ns + 10), "root", tenant="made")
    _, admin_secret = keys.create("admin", Terms("n", role="viewer", expires_ns=clock.now_ns + 10), "root")
    assert auth.api(bearer(secret), REMOTE).key_id == made.id
    assert auth.api(bearer(KEY), REMOTE) == Caller("one", "default")
    assert auth.admin_key(bearer(admin_secret), REMOTE).role == "viewer"
    assert auth.admin(bearer(ADMIN), REMOTE) == "root"
    for call, key in ((auth.api, admin_secret), (auth.admin, secret)):
        assert refusal(lambda call=call, key=key: call(bearer(key), LOCAL)).status == 401  # type: ignore[misc]
    auth.metrics(bearer(admin_secret), REMOTE)
    clock.now_ns += 10
    for call, key in ((auth.api, secret), (auth.admin, admin_secret), (auth.metrics, admin_secret)):
        assert refusal(lambda call=call, key=key: call(bearer(key), REMOTE)).status == 401  # type: ignore[misc]


def test_a_gateway_that_others_can_reach_takes_no_caller_without_a_key(tmp_path: Path) -> None:
    settings = AuthSettings(admin_keys=(AdminKey(id="root", sha256=digest(ADMIN)),))
    keys, _ = keyed_store(tmp_path, settings)
    auth = Authenticator(settings, keys, open_to_local=False)
    assert not auth.keyless
    assert refusal(lambda: auth.api(HOST, LOCAL)).status == 401
    _, secret = keys.create("api", Terms("n"), "root", tenant="t")
    assert auth.api(bearer(secret), REMOTE).tenant == "t"


def test_the_last_key_that_is_revoked_does_not_open_the_gateway(tmp_path: Path) -> None:
    settings = AuthSettings(admin_keys=(AdminKey(id="root", sha256=digest(ADMIN)),))
    keys, _ = keyed_store(tmp_path, settings)
    auth = Authenticator(settings, keys)
    assert auth.keyless and auth.api(HOST, LOCAL).key_id == "loopback"
    made, secret = keys.create("api", Terms("n"), "root", tenant="t")
    keys.revoke("api", made.id, "root")
    assert not auth.keyless
    for headers in (HOST, bearer(secret)):
        assert refusal(lambda headers=headers: auth.api(headers, LOCAL)).status == 401  # type: ignore[misc]


def test_the_last_admin_key_that_runs_out_does_not_open_the_admin_routes(tmp_path: Path) -> None:
    keys, clock = keyed_store(tmp_path, AuthSettings())
    keys.create("admin", Terms("n", role="admin", expires_ns=clock.now_ns + 10), "loopback")
    clock.now_ns += 10
    again = KeyStore(keys._store, AuthSettings())
    assert not again.table.admins
    for auth in (Authenticator(AuthSettings(), keys), Authenticator(AuthSettings(), again)):
        assert auth.api(HOST, LOCAL).key_id == "loopback"
        assert refusal(lambda auth=auth: auth.admin(HOST, LOCAL)).status == 401  # type: ignore[misc]


def test_looking_a_key_up_takes_as_long_for_one_as_for_many() -> None:
    """One access to a dictionary: no key of many is walked past."""

    class Counting(dict[bytes, Caller]):
        asked = 0

        def get(self, *args: object) -> Caller | None:  # type: ignore[override]
            Counting.asked += 1
            return super().get(*args)  # type: ignore[arg-type]

        def __iter__(self):  # type: ignore[no-untyped-def]
            raise AssertionError("walked through")

        items = values = keys = __iter__  # type: ignore[assignment]

    auth = Authenticator(AuthSettings(keys=API_KEYS))
    auth._table.callers = Counting(auth._table.callers)
    assert auth.api(bearer(KEY), REMOTE).key_id == "one"
    assert Counting.asked == 1
