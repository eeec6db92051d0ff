"""How much may be under way at once, alone and in front of the chat route on a real socket."""

from __future__ import annotations

import asyncio
import hashlib

import pytest

from tests.support.raw_http import Answer, exchange
from tests.unit.gateway.fakes import chat_body, hello
from tests.unit.gateway.served import Running, running
from weighbridge.config.errors import ApiError
from weighbridge.config.settings import ApiKey, AuthSettings
from weighbridge.gateway.concurrency import SMALL_BODY_BYTES, Concurrency
from weighbridge.router.admitted import Admitted, Sink

LARGE = 10 * SMALL_BODY_BYTES


def refusal(call, *args) -> ApiError:  # type: ignore[no-untyped-def]
    with pytest.raises(ApiError) as caught:
        call(*args)
    return caught.value


def test_one_key_cannot_take_the_places_of_all() -> None:
    reasons: list[str] = []
    bounds = Concurrency(most=3, most_per_key=2, most_body_bytes=LARGE, refused=reasons.append)
    bounds.enter("a")
    bounds.enter("a")
    error = refusal(bounds.enter, "a")
    assert (error.status, error.code, error.type) == (429, "too_many_requests", "rate_limit_error")
    assert error.retry_after_s is not None and error.retry_after_s > 0
    bounds.enter("b")
    error = refusal(bounds.enter, "b")
    assert (error.status, error.code, error.type) == (503, "gateway_busy", "server_error")
    assert error.retry_after_s is not None and error.retry_after_s > 0
    bounds.leave("a")
    bounds.enter("b")
    assert bounds.count == 3
    assert reasons == ["key", "requests"]


def test_a_key_may_have_a_bound_of_its_own_below_the_general_one() -> None:
    bounds = Concurrency(most=99, most_per_key=3, most_body_bytes=LARGE)
    bounds.enter("a", 1)
    error = refusal(bounds.enter, "a", 1)
    assert (error.status, error.code) == (429, "too_many_requests") and "(1)" in error.message
    # A bound that was raised or taken off counts from the next request on; none goes beyond the general one.
    bounds.enter("a", 2)
    bounds.enter("a", 99)
    assert "(3)" in refusal(bounds.enter, "a", 99).message
    bounds.enter("b", 1)
    for _ in range(3):
        bounds.leave("a")
    bounds.leave("b")
    assert (bounds.count, bounds._of_key) == (0, {})


def test_what_leaves_is_counted_no_more() -> None:
    bounds = Concurrency(most=1, most_per_key=1, most_body_bytes=LARGE)
    for _ in range(100):
        bounds.enter("a")
        bounds.leave("a", bounds.settle(bounds.hold(LARGE, LARGE), LARGE - 1))
    assert (bounds.count, bounds.body_bytes) == (0, 0)


def test_large_bodies_are_bounded_by_their_bytes_and_small_ones_free() -> None:
    reasons: list[str] = []
    bounds = Concurrency(most=99, most_per_key=99, most_body_bytes=LARGE, refused=reasons.append)
    assert bounds.hold(SMALL_BODY_BYTES, LARGE) == 0
    held = bounds.hold(LARGE - SMALL_BODY_BYTES, LARGE)
    error = refusal(bounds.hold, SMALL_BODY_BYTES + 1, LARGE)
    assert (error.status, error.code) == (503, "gateway_busy")
    assert bounds.hold(SMALL_BODY_BYTES, LARGE) == 0
    assert reasons == ["bodies"]
    assert bounds.settle(held, 10) == 10
    assert bounds.body_bytes == 10


def test_a_body_of_unknown_length_is_taken_for_the_largest_until_it_is_there() -> None:
    bounds = Concurrency(most=99, most_per_key=99, most_body_bytes=LARGE)
    assert bounds.hold(None, LARGE) == LARGE
    assert refusal(bounds.hold, None, LARGE).code == "gateway_busy"
    assert bounds.settle(LARGE, 7) == 7
    # A declared length over the limit is refused by its own rule, and sets no more aside than any body may have.
    assert bounds.hold(10**15, LARGE - 7) == LARGE - 7


KEYS = ("wb-one", "wb-two")
AUTH = AuthSettings(
    keys=tuple(ApiKey(id=key, sha256=hashlib.sha256(key.encode()).hexdigest()) for key in KEYS)
)


async def ask(here: Running, key: str, *headers: str, body: bytes | None = None) -> Answer:
    sound = chat_body() if body is None else body
    request = here.request(sound, f"Authorization: Bearer {key}", "Connection: close", *headers)
    (answer,) = (await exchange(here.port, request)).answers
    return answer


@pytest.mark.slow
async def test_what_is_too_much_is_refused_before_its_body_and_the_rest_goes_on() -> None:
    go = asyncio.Event()

    async def waits(request: Admitted, sink: Sink) -> None:
        await go.wait()
        await hello(request, sink)

    bounds = Concurrency(most=3, most_per_key=2, most_body_bytes=LARGE)
    async with running(waits, concurrency=bounds, auth=AUTH) as here:
        asked = [asyncio.ensure_future(ask(here, key)) for key in (KEYS[0], KEYS[0], KEYS[1])]
        async with asyncio.timeout(5):
            while len(here.dispatch.requests) < 3:
                await asyncio.sleep(0.005)
        # The body is announced and never sent: nobody waits for it.
        for key, status, code in ((KEYS[0], 429, "too_many_requests"), (KEYS[1], 503, "gateway_busy")):
            head = here.request(b"", f"Authorization: Bearer {key}", "Expect: 100-continue").replace(
                b"Content-Length: 0", b"Content-Length: 4000"
            )
            heard = await exchange(here.port, head, patience_s=0.3)
            assert [answer.status for answer in heard.answers] == [status]
            assert heard.answers[0].error["code"] == code
            assert heard.answers[0].headers["retry-after"] == "1"
        # Of a body of unknown length no more is read either.
        head = here.request(b"", f"Authorization: Bearer {KEYS[0]}").replace(
            b"Content-Length: 0", b"Transfer-Encoding: chunked"
        )
        heard = await exchange(here.port, head)
        assert heard.closed
        assert [answer.headers["connection"] for answer in heard.answers] == ["close"]
        # A wrong key is told nothing of it.
        assert (await ask(here, "wb-none")).status == 401
        go.set()
        assert [answer.status for answer in await asyncio.gather(*asked)] == [200] * 3
        assert (await ask(here, KEYS[0])).status == 200
        assert len(here.dispatch.requests) == 4
    assert (bounds.count, bounds.body_bytes) == (0, 0)


@pytest.mark.slow
async def test_every_end_of_a_request_gives_its_place_back() -> None:
    async def ends(request: Admitted, sink: Sink) -> None:
        if request.body.get("user") == "fails":
            raise RuntimeError
        if request.body.get("user") == "waits":
            await asyncio.Event().wait()
        await hello(request, sink)

    bounds = Concurrency(most=2, most_per_key=2, most_body_bytes=LARGE)
    async with running(ends, concurrency=bounds, auth=AUTH) as here:
        assert (await ask(here, KEYS[0])).status == 200
        assert (await ask(here, KEYS[0], body=b"{")).status == 400
        assert (await ask(here, KEYS[0], "x-weighbridge-priority: none")).status == 400
        assert (await ask(here, KEYS[0], body=b"x" * 5000)).status == 413
        assert (await ask(here, KEYS[0], body=chat_body(user="fails"))).status == 500
        for sent in (here.request(chat_body(user="waits"), f"Authorization: Bearer {KEYS[0]}"),):
            for piece in (sent, sent[:-5]):
                await exchange(here.port, piece, patience_s=0.1)
        async with asyncio.timeout(5):
            while bounds.count:
                await asyncio.sleep(0.005)
    assert bounds.body_bytes == 0
