"""Keys of one kind where the other is wanted, addresses spelled in odd ways, and logs that must not hold a key."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from fastapi.routing import APIRoute

from tests.support.raw_http import exchange
from tests.support.running import Running, running_gateway
from weighbridge.gateway.api import make_api
from weighbridge.gateway.auth import Authenticator
from weighbridge.gateway.front import CHAT_PATH, COMPLETIONS_PATH

USER, ADMIN, WRONG = "wb-user-5c7Q", "wb-admin-9kX2", "wb-wrong-1zP8"
OPEN = {"/health/live", "/health/ready", "/openapi.json", "/metrics"}
"""Need no key; the metrics from this machine only."""
BODY = b'{"model":"local-8b","messages":[{"role":"user","content":"hello"}],"prompt":"hello"}'


def digest(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Running]:
    auth = {
        "keys": [{"id": "one", "sha256": digest(USER)}],
        "admin_keys": [{"id": "root", "sha256": digest(ADMIN)}],
    }
    async with running_gateway(tmp_path, auth=auth) as running:
        yield running


def routes(here: Running) -> Iterator[tuple[str, str]]:
    """Every method and path of the application, its parameters filled in."""
    yield "POST", CHAT_PATH
    yield "POST", COMPLETIONS_PATH
    yield "GET", "/openapi.json"
    for route in make_api(here.parts, Authenticator(here.parts.settings.auth)).routes:
        if isinstance(route, APIRoute):
            for method in route.methods:
                yield method, re.sub(r"{.*}", "auto", route.path)


async def ask(
    here: Running, method: str, target: str, *headers: str, version: str = "1.1"
) -> tuple[int, bytes]:
    """The status and body of the one answer; status 0 where the connection was closed without one."""
    port = int(here.url.rpartition(":")[2])
    lines = [
        f"{method} {target} HTTP/{version}",
        f"Host: 127.0.0.1:{port}",
        f"Content-Length: {len(BODY)}",
        "Connection: close",
        *headers,
    ]
    heard = await exchange(port, "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + BODY)
    assert heard.closed
    assert len(heard.answers) <= 1
    return (heard.answers[0].status, heard.answers[0].body) if heard.answers else (0, b"")


def bearer(key: str) -> str:
    return f"Authorization: Bearer {key}"


REFUSED = {401, 403}


async def test_each_route_takes_one_kind_of_key_and_never_the_other(here: Running) -> None:
    seen = set()
    for method, path in routes(here):
        seen.add(path)
        wanted, other = (ADMIN, USER) if path.startswith("/admin") else (USER, ADMIN)
        answers = {
            "right": (await ask(here, method, path, bearer(wanted)))[0],
            "other": (await ask(here, method, path, bearer(other)))[0],
            "wrong": (await ask(here, method, path, bearer(WRONG)))[0],
            "none": (await ask(here, method, path))[0],
        }
        if path in OPEN:
            assert set(answers.values()) == {200}, (path, answers)
            continue
        # 400: the body is none that this route takes, 404: nothing has this id, which only the right key is told.
        assert answers.pop("right") in {200, 400, 404}, (method, path)
        assert set(answers.values()) <= REFUSED, (method, path, answers)
    assert {CHAT_PATH, "/v1/models", "/admin/v1/pool", "/admin/v1/egress/switch", "/metrics"} <= seen


CREDENTIALS = {
    "two keys": (bearer(WRONG), bearer("{key}")),
    "two keys, right one first": (bearer("{key}"), bearer(WRONG)),
    "the right key twice": (bearer("{key}"), bearer("{key}")),
    "a list": ("Authorization: Bearer {key}, Bearer x",),
    "api-key": ("api-key: {key}",),
    "x-api-key": ("x-api-key: {key}",),
    "basic": ("Authorization: Basic {key}",),
    "no scheme": ("Authorization: {key}",),
    "tab for a space": ("Authorization: Bearer\t{key}",),
    "proxy": ("Proxy-Authorization: Bearer {key}",),
    "cookie": ("Cookie: authorization=Bearer {key}",),
    "underscore": ("X_Authorization: Bearer {key}",),
    "digest of the key": ("Authorization: Bearer {digest}",),
    "longer": ("Authorization: Bearer {key}x",),
    "shorter": ("Authorization: Bearer {short}",),
    "another case": ("Authorization: Bearer {upper}",),
}


async def test_a_key_counts_in_one_place_and_form_only(here: Running) -> None:
    for key, method, path in (
        (USER, "POST", CHAT_PATH),
        (USER, "GET", "/v1/models"),
        (ADMIN, "GET", "/admin/v1/pool"),
    ):
        for name, headers in CREDENTIALS.items():
            filled = [
                header.format(key=key, digest=digest(key), short=key[:-1], upper=key.upper())
                for header in headers
            ]
            status, body = await ask(here, method, path, *filled)
            assert status in REFUSED, (name, path)
            assert key.encode() not in body
        query = f"api_key={key}&key={key}&authorization=Bearer%20{key}"
        assert (await ask(here, method, f"{path}?{query}"))[0] in REFUSED
    assert here.rows() == []


async def test_a_key_in_a_trailer_is_none(here: Running) -> None:
    port = int(here.url.rpartition(":")[2])
    head = (
        f"POST {CHAT_PATH} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    )
    chunks = b"%x\r\n%b\r\n0\r\n%b\r\n\r\n" % (len(BODY), BODY, bearer(USER).encode())
    (answer,) = (await exchange(port, head.encode() + chunks)).answers
    assert answer.status == 401


def spellings(path: str) -> Iterator[str]:
    """Other ways to write `path`, some of which a server on the way may take for it."""
    bare = path.lstrip("/")
    yield from (f"//{bare}", f"/./{bare}", f"/v1/../{bare}", f"/health/live/../../{bare}", f"/v1/..;/{bare}")
    yield from (f"/%2e%2e/{bare}", f"/v1/%2e%2e/{bare}", f"/health%2f..%2f{bare}", f"/%2f{bare}", f"\\{bare}")
    yield from (f"{path}/", f"{path}//", f"{path}/.", f"{path};a=b", f"{path};", f"{path}%3b", f"{path}%20")
    yield from (
        f"{path}%00",
        f"{path}%00.json",
        f"{path}.json",
        f"{path}#x",
        f"{path}?x",
        f"{path}%3fx",
        f"{path}%23",
    )
    yield from (
        path.upper(),
        path.title(),
        path.replace("/", "%2f"),
        path.replace("/", "\\"),
        path.replace("v", "%76"),
    )
    yield from (
        path.replace("v1", "v%31"),
        path.replace("a", "%61"),
        path.replace("a", "%2561"),
        path.replace("a", "%u0061"),
    )
    yield from (
        f"http://127.0.0.1{path}",
        f"https://127.0.0.1{path}",
        f"http://evil.example{path}",
        f"ftp://x{path}",
    )
    yield from (
        f"http://user:pass@127.0.0.1{path}",
        f"127.0.0.1:80{path}",
        "*",
        "/",
        "",
        f"/health/live{path}",
    )


async def test_no_spelling_of_an_address_goes_around_its_key(here: Running) -> None:
    for path, method, other in (("/admin/v1/pool", "GET", USER), (CHAT_PATH, "POST", ADMIN)):
        for headers in ((), (bearer(other),)):
            for target in spellings(path):
                status, body = await ask(here, method, target, *headers)
                assert status in {0, 400, 401, 403, 404, 405}, (target, status)
                assert b"Traceback" not in body
    assert here.rows() == []


METHODS = (
    "GET",
    "HEAD",
    "POST",
    "PUT",
    "PATCH",
    "DELETE",
    "OPTIONS",
    "TRACE",
    "CONNECT",
    "PROPFIND",
    "QUERY",
    "get",
    "X",
)


async def test_no_method_goes_around_a_key(here: Running) -> None:
    overrides = ("X-HTTP-Method-Override: {}", "X-HTTP-Method: {}", "X-Method-Override: {}")
    for path, wanted in ((CHAT_PATH, "POST"), ("/admin/v1/pool", "GET"), ("/admin/v1/egress/switch", "PUT")):
        other = USER if path.startswith("/admin") else ADMIN
        for method in METHODS:
            status, _ = await ask(
                here, method, path, bearer(other), *(override.format(wanted) for override in overrides)
            )
            assert status in {0, 400, 401, 403, 404, 405, 501}, (method, path, status)
    for version in ("0.9", "1.0", "1.2", "2.0", "3.0", "9.9"):
        for path, key in (("/admin/v1/pool", USER), ("/v1/models", ADMIN)):
            assert (await ask(here, "GET", path, bearer(key), version=version))[0] in {0, 400, 401, 505}
    # Overriding does nothing for those who may call either.
    assert (await ask(here, "GET", "/v1/models", bearer(USER), "X-HTTP-Method-Override: DELETE"))[0] == 200
    assert (await ask(here, "OPTIONS", "*", bearer(ADMIN)))[0] in {404, 405}
    assert here.rows() == []
    assert here.parts.switch.by() is None


async def test_an_absolute_address_must_name_the_host_it_was_sent_to(here: Running) -> None:
    port = here.url.rpartition(":")[2]
    assert (await ask(here, "GET", f"http://127.0.0.1:{port}/v1/models", bearer(USER)))[0] == 200
    assert (await ask(here, "GET", "http://other.example/v1/models", bearer(USER)))[0] == 400


async def test_no_log_at_any_level_holds_a_key(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    before = {
        name: logging.getLogger(name).level
        for name in ("", "weighbridge", "uvicorn.error", "uvicorn.asgi", "asyncio")
    }
    auth = {
        "keys": [{"id": "one", "sha256": digest(USER)}],
        "admin_keys": [{"id": "root", "sha256": digest(ADMIN)}],
    }
    try:
        async with running_gateway(tmp_path, auth=auth) as here:
            for name in before:
                logging.getLogger(name).setLevel(1)
            caplog.handler.setLevel(1)
            port = int(here.url.rpartition(":")[2])
            for key in (USER, ADMIN, WRONG):
                for path in (
                    CHAT_PATH,
                    "/v1/models",
                    "/admin/v1/pool",
                    f"/v1/{key}",
                    f"/v1/models/{key}?key={key}",
                ):
                    for headers in (
                        (bearer(key),),
                        (f"x-api-key: {key}", f"Cookie: {key}"),
                        (f"Host: {key}",),
                    ):
                        await ask(here, "POST", path, *headers)
                        await ask(here, "GET", path, *headers)
                for raw in (
                    f"{key}\r\n\r\n",
                    f"GET /{key} HTTP/9.9\r\n{bearer(key)}\r\n\r\n",
                    f"GET / HTTP/1.1\r\n{bearer(key)}\r\n {key}\r\n\r\n",
                    f"POST / HTTP/1.1\r\n{bearer(key)}\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{key}",
                    f"GET / HTTP/1.1\r\nHost: x\r\n{bearer(key)}\r\n" + f"a: {key}\r\n" * 200 + "\r\n",
                    f"GET /{key * 900} HTTP/1.1\r\nHost: x\r\n{bearer(key)}\r\n\r\n",
                ):
                    heard = await exchange(port, raw.encode())
                    assert all(key.encode() not in answer.body for answer in heard.answers)
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
    written = capfd.readouterr()
    for text in (caplog.text, written.out, written.err, *(str(vars(record)) for record in caplog.records)):
        for key in (USER, ADMIN, WRONG):
            assert key not in text
            assert digest(key) not in text
    assert "refused as HTTP" in caplog.text
