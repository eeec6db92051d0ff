"""`HttpEngine` on the wire: what it sends, and what it makes of streams, documents and refusals that go wrong."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import Any

import pytest

from tests.contract import test_engine_contract as shared
from tests.support.engine_lab import chat, complete, new_call, parse_all, stream, until
from tests.support.http_pair import pair, ways
from tests.support.model_server import MODEL, PROMPT_MARK, Fault, model_server, status
from weighbridge.config.errors import ApiError, ContextLengthExceeded, InvalidRequest
from weighbridge.pool.engine import (
    Confidence,
    EngineCall,
    EngineOverloaded,
    EngineUnavailable,
    Trail,
)

IDLE_S = 0.3


def with_text(documents: list[dict[str, Any]]) -> int:
    """Events with text: a lower bound on the tokens, one of which may be half a character."""
    found = sum(
        bool(choice["delta"].get("content")) for document in documents for choice in document["choices"]
    )
    assert found
    return found


# -- what is sent


async def test_the_request_carries_our_names_and_nothing_of_our_own_that_a_server_could_refuse() -> None:
    async with pair(key="k-1", endpoint_api_key="k-1") as both:
        call = new_call(chat(user="u", model="auto", request_id="mine", stream_options={"x": 1}))
        async for _ in both.engine.stream(call):
            pass
        await complete(both.engine, chat(stream_options={"include_usage": True}))
        streamed, whole = both.server.asked("/v1/chat/completions")
    assert "request_id" not in streamed.body and "request_id" not in whole.body
    assert streamed.body["model"] == MODEL and streamed.body["user"] == "u"
    assert streamed.body["stream_options"] == {
        "x": 1,
        "include_usage": True,
        "continuous_usage_stats": True,
    }
    assert whole.body["stream"] is False and "stream_options" not in whole.body
    assert streamed.headers["x-request-id"] == call.request_id
    assert streamed.headers["authorization"] == "Bearer k-1"
    assert streamed.headers["accept"] == "text/event-stream"
    assert set(streamed.headers) == {
        "host",
        "accept",
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "user-agent",
        "x-request-id",
    }


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with pair() as both:
        assert (await complete(both.engine, chat())).meter.completion == 12


async def test_a_cookie_is_not_sent_back() -> None:
    async with pair() as both:
        both.server.fault = status(500, set_cookie="a=b; Path=/")
        with pytest.raises(EngineUnavailable):
            await complete(both.engine, chat())
        both.server.fault = None
        await complete(both.engine, chat())
        assert all("cookie" not in seen.headers for seen in both.server.seen)


@ways
async def test_a_redirect_is_not_followed(way: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with model_server() as other, pair() as both:
        both.server.fault = status(307, location=f"{other.url}/chat/completions")
        with pytest.raises(EngineUnavailable):
            await way(both.engine, chat())
        assert other.seen == []
        assert both.engine.alive
    assert "redirect" in caplog.text


# -- streams that go wrong


@pytest.mark.parametrize("name", ["cut", "short", "stall", "malformed", "error_event", "early_done", "abort"])
@pytest.mark.parametrize("counts", [True, False], ids=["counted", "uncounted"])
async def test_a_stream_that_breaks_off_never_looks_finished(name: str, counts: bool) -> None:
    async with pair(endpoint_idle_timeout_s=IDLE_S, counts=counts) as both:
        both.server.fault = Fault(name, after=5)
        call = new_call(chat(max_tokens=40, stream_options={"include_usage": True}))
        seen: list[dict[str, Any]] = []
        with pytest.raises(EngineUnavailable):
            async for event in both.engine.stream(call):
                seen += parse_all(event)
        # One event with the role, then a token each.
        assert len(seen) == 5
        assert all(choice["finish_reason"] is None for document in seen for choice in document["choices"])
        assert call.meter.completion == (4 if counts else with_text(seen)) and not call.meter.exact
        assert (call.meter.prompt > 0) == counts
        await both.until_free()
        both.server.fault = None
        assert (await stream(both.engine, chat())).meter.completion == 12


@pytest.mark.parametrize("name", ["bytewise", "gzip", "crlf", "no_done", "none"])
async def test_a_stream_that_comes_oddly_is_the_same_answer(name: str) -> None:
    async with pair() as both:
        wanted = (await complete(both.engine, chat())).text()
        both.server.fault = Fault(name)
        answer = await stream(both.engine, chat(stream_options={"include_usage": True}))
        assert answer.text() == wanted
        assert answer.reasons() == {0: "length"}
        shared.check_meter(answer)


@pytest.mark.parametrize("counts", [True, False])
async def test_a_stream_without_usage_at_its_end_is_counted_by_its_events(counts: bool) -> None:
    async with pair(counts=counts) as both:
        both.server.fault = Fault("no_usage")
        answer = await stream(both.engine, chat(stream_options={"include_usage": True}))
        assert answer.reasons() == {0: "length"}
        assert answer.meter.completion == with_text(answer.documents) and not answer.meter.exact


async def test_counts_with_every_event_are_shown_only_to_those_who_asked_for_them() -> None:
    async with pair() as both:
        plain = await stream(both.engine, chat(stream_options={"include_usage": True}))
        assert ["usage" in document for document in plain.documents].count(True) == 1
        options = {"include_usage": True, "continuous_usage_stats": True}
        call = new_call(chat(stream_options=options))
        documents = [one async for piece in both.engine.stream(call) for one in parse_all(piece)]
        assert all("usage" in document for document in documents)


async def test_counts_of_one_choice_are_not_taken_for_those_of_all() -> None:
    async with pair(endpoint_idle_timeout_s=IDLE_S) as both:
        both.server.fault = Fault("cut", after=6)
        call = new_call(chat(n=3, temperature=1.0, max_tokens=30))
        seen: list[dict[str, Any]] = []
        with pytest.raises(EngineUnavailable):
            async for event in both.engine.stream(call):
                seen += parse_all(event)
        assert call.meter.completion == with_text(seen) and call.meter.prompt > 0


@pytest.mark.parametrize("name", ["garbage", "reset", "stall_head", "page"])
async def test_an_answer_that_is_none_is_a_lost_stream(name: str) -> None:
    async with pair(endpoint_idle_timeout_s=IDLE_S) as both:
        both.server.fault = Fault(name)
        with pytest.raises(EngineUnavailable):
            await stream(both.engine, chat())
        assert both.engine.alive and both.engine.load().unfinished == 0
        await both.until_free()


@pytest.mark.parametrize("name", ["garbage", "reset", "page", "not_json", "error_document"])
async def test_a_document_that_is_no_answer_is_lost(name: str) -> None:
    async with pair() as both:
        both.server.fault = Fault(name)
        with pytest.raises(EngineUnavailable):
            await complete(both.engine, chat())
        assert both.engine.alive and both.engine.load().unfinished == 0
        both.server.fault = Fault("gzip")
        assert (await complete(both.engine, chat())).meter.completion == 12


async def test_a_whole_answer_may_be_silent_for_longer_than_the_idle_limit() -> None:
    async with pair(endpoint_idle_timeout_s=0.05) as both:
        both.there.script.first_gate = asyncio.Event()
        task = asyncio.create_task(complete(both.engine, chat()))
        await until(lambda: both.there.load().unfinished == 1)
        await asyncio.wait([task], timeout=4 * 0.05)
        assert not task.done()
        before = both.engine.load().made
        assert await both.engine.probe(5.0)
        assert both.engine.load().made > before, "it would be taken for one that stands still"
        both.there.script.first_gate.set()
        assert (await task).meter.completion == 12
        settled = both.engine.load().made
        assert await both.engine.probe(5.0)
        assert both.engine.load().made == settled
        # The limit is there all the same.
        both.there.script.first_gate = asyncio.Event()
        with pytest.raises(EngineUnavailable):
            await stream(both.engine, chat())


async def test_what_was_made_is_counted_as_it_comes() -> None:
    async with pair() as both:
        await stream(both.engine, chat(max_tokens=7))
        assert both.engine.load().made == 7
        await complete(both.engine, chat(max_tokens=5))
        assert both.engine.load().made == 12


async def test_a_meter_that_has_counted_before_goes_on_from_there() -> None:
    async with pair() as both:
        call = new_call(chat())
        call.meter.prompt, call.meter.completion = 100, 50
        async for _ in both.engine.stream(call):
            pass
        assert (call.meter.completion, call.meter.exact) == (62, True) and call.meter.prompt > 100
        both.server.fault = status(429)
        with pytest.raises(EngineOverloaded):
            await both.engine.complete(EngineCall("again", chat(), call.meter))
        assert (call.meter.completion, call.meter.exact) == (62, True)


# -- refusals


@ways
@pytest.mark.parametrize(
    ("code", "error", "raised", "param", "word"),
    [
        (429, {}, EngineOverloaded, None, "engine_overloaded"),
        (503, {"type": "Service Unavailable"}, EngineOverloaded, None, "engine_overloaded"),
        (503, {"code": "queue_full"}, EngineOverloaded, None, "engine_overloaded"),
        (503, {"type": "ServiceUnavailableError"}, EngineUnavailable, None, "engine_unavailable"),
        (500, {}, EngineUnavailable, None, "engine_unavailable"),
        (502, {}, EngineUnavailable, None, "engine_unavailable"),
        (401, {}, EngineUnavailable, None, "engine_unavailable"),
        (403, {}, EngineUnavailable, None, "engine_unavailable"),
        (404, {"code": "model_not_found"}, EngineUnavailable, None, "engine_unavailable"),
        (400, {"code": "invalid_model"}, EngineUnavailable, None, "engine_unavailable"),
        (204, {}, EngineUnavailable, None, "engine_unavailable"),
        (400, {"param": "temperature"}, InvalidRequest, "temperature", None),
        (400, {"code": "unsupported_content", "param": "messages"}, InvalidRequest, "messages", "unsupported_content"),
        (422, {"param": "SECRET words", "code": "SECRET-7"}, InvalidRequest, None, None),
        (413, {"code": "request_too_large"}, InvalidRequest, None, "request_too_large"),
        (400, {"code": "context_length_exceeded"}, ContextLengthExceeded, "messages", "context_length_exceeded"),
        (400, {"param": "input_tokens"}, ContextLengthExceeded, "messages", "context_length_exceeded"),
        (
            400,
            {"message": "This model's maximum context length is 512 tokens. SECRET"},
            ContextLengthExceeded,
            "messages",
            "context_length_exceeded",
        ),
        (
            400,
            {"param": "max_tokens", "message": "max_tokens must be at least 1, got 0. SECRET"},
            ContextLengthExceeded,
            "messages",
            "context_length_exceeded",
        ),
    ],
)  # fmt: skip
async def test_a_refusal_is_told_in_our_words(
    way: Any,
    code: int,
    error: dict[str, Any],
    raised: type[ApiError],
    param: str | None,
    word: str | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with pair() as both:
        both.server.fault = status(code, error)
        call = new_call(chat("SECRET-prompt"))
        with pytest.raises(raised) as caught:
            if way is complete:
                await both.engine.complete(call)
            else:
                async for _ in both.engine.stream(call):
                    pytest.fail("an event came before the refusal")
        assert type(caught.value) is raised
        assert (caught.value.param, caught.value.code) == (param, word)
        assert both.engine.alive and both.engine.load().unfinished == 0
        assert (call.meter.prompt, call.meter.completion) == (0, 0)
        assert call.meter.exact is (raised is not EngineUnavailable or code < 500)
    for text in (str(caught.value), repr(caught.value), repr(caught.value.__cause__), caplog.text):
        assert PROMPT_MARK not in text
    assert ("local-8b: http://127.0.0.1" in caplog.text) is (raised is EngineUnavailable)


async def test_max_tokens_that_the_caller_got_wrong_is_no_long_prompt() -> None:
    async with pair() as both:
        both.server.fault = status(
            400, {"param": "max_tokens", "message": "max_tokens must be at least 1, got 0."}
        )
        with pytest.raises(InvalidRequest) as caught:
            await complete(both.engine, chat(max_tokens=0))
        assert not isinstance(caught.value, ContextLengthExceeded)
        assert caught.value.param == "max_tokens"


class Hands:
    """A clock that the test moves."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall_ns(self) -> int:
        return 0


async def test_a_wrong_key_is_said_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Hands()
    async with pair(key="right", endpoint_api_key="right", clock=clock) as both:
        both.server.key = "changed"
        for minute in (1, 2):
            for _ in range(3):
                with pytest.raises(EngineUnavailable):
                    await complete(both.engine, chat())
            said = [line for line in caplog.messages if "endpoint_api_key_file" in line]
            assert len(said) == minute
            clock.now += 60.0
        assert "right" not in caplog.text


# -- trails


async def test_an_answer_over_http_cannot_be_continued() -> None:
    async with pair() as both:
        trail = Trail()
        call = EngineCall("with-trail", chat(), new_call({}).meter, trail=trail)
        async for _ in both.engine.stream(call):
            assert trail.lost
        sent = len(both.server.seen)
        begun = Trail(token_ids=[1, 2], created=1)
        with pytest.raises(EngineUnavailable):
            async for _ in both.engine.stream(EngineCall("more", chat(), call.meter, trail=begun)):
                pytest.fail("it began anew")
        assert len(both.server.seen) == sent


async def test_a_trail_that_nothing_was_sent_of_may_be_used_elsewhere() -> None:
    async with pair() as both:
        both.server.fault = status(500)
        trail = Trail()
        with pytest.raises(EngineUnavailable):
            async for _ in both.engine.stream(EngineCall("x", chat(), new_call({}).meter, trail=trail)):
                pass
        assert not trail.lost


@ways
async def test_a_server_without_log_probabilities_is_asked_without_them(way: Any) -> None:
    async def ask(engine: Any) -> Confidence:
        call = dataclasses.replace(new_call(chat()), confidence=(sure := Confidence()))
        if way is complete:
            await engine.complete(call)
        else:
            assert [event async for event in engine.stream(call)]
        assert call.meter.completion == 12 and call.meter.exact
        return sure

    async with pair(weighs=False) as both:
        assert (await ask(both.engine)).mean is None
        assert (await ask(both.engine)).mean is None
        # What it refused once it is not asked for again.
        sent = [seen.body.get("logprobs") for seen in both.server.asked("/v1/chat/completions")]
        assert sent == [True, None, None]


@ways
async def test_a_request_that_is_wrong_by_itself_says_nothing_about_log_probabilities(way: Any) -> None:
    async with pair() as both:
        wrong = dataclasses.replace(new_call(chat(temperature=3.5)), confidence=Confidence())
        with pytest.raises(InvalidRequest):
            if way is complete:
                await both.engine.complete(wrong)
            else:
                async for _ in both.engine.stream(wrong):
                    pytest.fail("an event came before the refusal")
        sure = Confidence()
        await both.engine.complete(dataclasses.replace(new_call(chat()), confidence=sure))
        assert sure.tokens == 12


async def test_a_server_that_has_given_log_probabilities_is_asked_once_unless_it_speaks_of_them() -> None:
    async with pair() as both:

        async def sent(answer: Fault | None) -> list[bool | None]:
            both.server.fault, before = answer, len(both.server.asked("/v1/chat/completions"))
            call = dataclasses.replace(new_call(chat()), confidence=Confidence())
            with contextlib.nullcontext() if answer is None else pytest.raises(InvalidRequest):
                await both.engine.complete(call)
            return [seen.body.get("logprobs") for seen in both.server.asked("/v1/chat/completions")[before:]]

        assert await sent(status(400)) == [True, None], "it may be for their sake"
        assert await sent(None) == [True]
        for code in (400, 422):
            assert await sent(status(code)) == [True]
        assert await sent(status(400, {"message": "logprobs do not go with this"})) == [True, None]
        assert await sent(None) == [True]
