"""Commercial endpoints that fail: the caller sees a whole answer or one clean error, the provider a few requests."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.support import recorder as rec
from tests.support.endpoints import (
    HARD,
    assert_broken_off,
    assert_not_hammered,
    assert_whole,
    events,
    gaps,
    site,
    told,
)
from tests.support.odd_streams import (
    DONE,
    END,
    HEAD,
    ROLE,
    TEXT,
    USAGE,
    choice,
    document,
    event,
    head,
    numbered,
    payloads,
    stream,
)
from tests.support.recorder import OK, Mode, raw

BOTH = pytest.mark.parametrize("streamed", [False, True])

# ---- before the first content: again, elsewhere, or one error ----


@BOTH
@pytest.mark.parametrize(
    "once",
    [rec.STATUS_500, rec.status(503), rec.RESET, rec.status(429), rec.status(408), raw(b"")],
    ids=["500", "503", "reset", "429", "408", "closed"],
)
async def test_what_passes_is_asked_again(tmp_path: Path, once: Mode, streamed: bool) -> None:
    async with site(tmp_path, OK) as here:
        here.main.script(once)
        answer = await here.ask(stream=streamed)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-weighbridge-attempts"] == "2"
        assert len(here.main.requests) == 2 and gaps(here.main)[0] >= 0.25
        (row,) = here.gateway.rows()
        first, second = here.gateway.attempts(row["request_id"])
        assert first["outcome"].startswith("upstream_") and second["outcome"] == "ok"
        # What failed is no completion, and each attempt that left has a row of its own in the chain.
        assert (first["prompt_tokens"], first["completion_tokens"]) == (0, 0)
        assert row["prompt_tokens"] == second["prompt_tokens"] == rec.PROMPT_TOKENS
        assert [egress["attempt"] for egress in here.gateway.egress()] == [1, 2]
        await here.healthy()


@BOTH
async def test_retry_after_is_waited_for(tmp_path: Path, streamed: bool) -> None:
    async with site(tmp_path, OK) as here:
        here.main.script(rec.status(429, retry_after="1"))
        answer = await here.ask(stream=streamed)
        assert answer.status_code == 200
        assert 0.95 <= gaps(here.main)[0] < 3
        await here.healthy()


async def test_others_wait_as_well_while_a_provider_wants_to_be_left_alone(tmp_path: Path) -> None:
    async with site(tmp_path, OK) as here:
        here.main.script(rec.status(429, retry_after="1"))
        first = asyncio.create_task(here.ask())
        await here.main.until(lambda: here.main.served == 1)
        second = await here.ask()
        assert (await first).status_code == second.status_code == 200
        times = [seen.at for seen in here.main.requests]
        assert all(later - times[0] >= 0.95 for later in times[1:])


@pytest.mark.parametrize("asked", ["3600", "30"])
async def test_a_longer_wait_is_the_callers(tmp_path: Path, asked: str) -> None:
    async with site(tmp_path, rec.status(429, retry_after=asked)) as here:
        began = time.monotonic()
        answer = await here.ask()
        assert time.monotonic() - began < 2
        assert answer.status_code == 429 and answer.headers["retry-after"] == asked
        assert answer.json()["error"]["code"] == "upstream_rate_limited"
        assert len(here.main.requests) == 1
        # The next one does not ask at all.
        again = await here.ask()
        assert again.status_code == 429 and int(again.headers["retry-after"]) > 5
        assert len(here.main.requests) == 1


async def test_the_wait_ends_with_the_requests_own_time(tmp_path: Path) -> None:
    async with site(tmp_path, rec.status(429, retry_after="3"), server={"request_timeout_s": 1.5}) as here:
        answer = await here.ask()
        assert answer.status_code == 429 and len(here.main.requests) == 1


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("mode", [rec.status(503), rec.status(429)], ids=["503", "429"])
async def test_what_does_not_pass_ends_in_one_error(tmp_path: Path, mode: Mode, streamed: bool) -> None:
    async with site(tmp_path, mode) as here:
        began = time.monotonic()
        answer = await here.ask(stream=streamed)
        assert time.monotonic() - began < 10
        assert answer.status_code == (429 if mode.status == 429 else 502)
        assert "provider text" not in answer.text
        assert_not_hammered(here.main)
        assert len(here.main.requests) == 4
        (row,) = here.gateway.rows()
        assert (row["outcome"], row["attempts"]) == ("refused" if mode.status == 429 else "error", 4)
        assert (row["prompt_tokens"], row["completion_tokens"]) == (0, 0)
        await here.healthy()


@BOTH
async def test_with_a_local_road_there_is_one_quick_retry(tmp_path: Path, streamed: bool) -> None:
    async with site(tmp_path, rec.STATUS_500) as here:
        answer = await here.ask(model="auto", messages=HARD, stream=streamed)
        assert answer.status_code == 200 and answer.headers["x-weighbridge-road"] == "local-70b"
        assert answer.headers["x-weighbridge-attempts"] == "3"
        assert len(here.main.requests) == 2
        left = [
            attempt["egress_id"] for attempt in here.gateway.attempts(here.gateway.rows()[0]["request_id"])
        ]
        assert left == [*(egress["egress_id"] for egress in here.gateway.egress()), ""]
        await here.healthy()


@BOTH
async def test_a_busy_provider_is_left_for_a_local_road_at_once(tmp_path: Path, streamed: bool) -> None:
    async with site(tmp_path, rec.status(429, retry_after="5")) as here:
        answer = await here.ask(model="auto", messages=HARD, stream=streamed)
        assert answer.status_code == 200 and answer.headers["x-weighbridge-road"] == "local-70b"
        assert len(here.main.requests) == 1


@BOTH
@pytest.mark.parametrize("silent", [rec.STALL, rec.STALL_BODY], ids=["no answer", "no body"])
async def test_a_silent_route_is_not_asked_again(tmp_path: Path, silent: Mode, streamed: bool) -> None:
    async with site(tmp_path, silent) as here:
        began = time.monotonic()
        answer = await here.ask(stream=streamed)
        assert time.monotonic() - began < 3
        assert answer.status_code == 504 and len(here.main.requests) == 1
        await here.healthy()


@BOTH
async def test_a_silent_route_is_left_for_the_next_endpoint(tmp_path: Path, streamed: bool) -> None:
    async with site(tmp_path, rec.STALL, OK) as here:
        answer = await here.ask(stream=streamed)
        assert answer.status_code == 200
        assert (len(here.main.requests), len(here.second.requests)) == (1, 1)
        await here.healthy()


async def test_a_slow_first_token_moves_on(tmp_path: Path) -> None:
    # A head, a role and signs of life, and never a word.
    slow = raw(HEAD, event(ROLE), *(step for _ in range(30) for step in (b": ping\n\n", 0.1)))
    async with site(tmp_path, slow, OK) as here:
        began = time.monotonic()
        answer = await here.ask(stream=True)
        assert 0.7 < time.monotonic() - began < 3
        assert told(answer.text).startswith("You said") and events(answer.text)[-1] == "[DONE]"
        assert (len(here.main.requests), len(here.second.requests)) == (1, 1)
        await here.healthy()


async def test_a_cut_before_the_first_content_starts_anew_somewhere_else(tmp_path: Path) -> None:
    async with site(tmp_path, raw(HEAD, event(ROLE)), OK) as here:
        answer = await here.ask(stream=True)
        assert told(answer.text).startswith("You said")
        # Nothing of the first answer is left in the second.
        assert answer.text.count('"role"') == 1
        await here.healthy()


# ---- after it: the answer ends, or an error event ----


async def test_a_stream_cut_after_forty_of_sixty_tokens(tmp_path: Path) -> None:
    tokens = numbered(60)
    cut = raw(HEAD, *(event(document(choice({"content": token}))) for token in tokens[:40]))
    async with site(tmp_path, cut, OK) as here:
        answer = await here.ask(stream=True, stream_options={"include_usage": True})
        assert_broken_off(answer, "".join(tokens[:40]), "upstream_cut")
        assert (len(here.main.requests), len(here.second.requests)) == (1, 0)
        (row,) = here.gateway.rows()
        assert (row["outcome"], row["completion_tokens"], bool(row["tokens_exact"])) == (
            "truncated",
            40,
            False,
        )
        await here.healthy()


async def test_a_stream_that_stalls(tmp_path: Path) -> None:
    tokens = numbered(40)
    stalled = raw(HEAD, *(event(document(choice({"content": token}))) for token in tokens), 30.0)
    async with site(tmp_path, stalled) as here:
        began = time.monotonic()
        answer = await here.ask(stream=True)
        assert 0.45 < time.monotonic() - began < 3
        assert_broken_off(answer, "".join(tokens), "upstream_stall")
        await here.healthy()


async def test_comments_do_not_keep_a_stalled_stream_alive(tmp_path: Path) -> None:
    word = event(document(choice({"content": "word"})))
    pinged = raw(HEAD, word, *(step for _ in range(60) for step in (b": ping\n\n", 0.1)))
    async with site(tmp_path, pinged) as here:
        began = time.monotonic()
        assert_broken_off(await here.ask(stream=True), "word", "upstream_stall")
        assert time.monotonic() - began < 3


@pytest.mark.parametrize("usage", [True, False])
async def test_without_done_a_whole_answer_ends_promptly(tmp_path: Path, usage: bool) -> None:
    chunks = payloads() if usage else payloads()[:-1]
    async with site(tmp_path, raw(HEAD, stream(chunks), 30.0), limits={"gap_s": 20}) as here:
        began = time.monotonic()
        answer = await here.ask(stream=True)
        assert time.monotonic() - began < (0.9 if usage else 2.5)
        assert_whole(answer, TEXT)
        (row,) = here.gateway.rows()
        assert row["outcome"] == "ok"
        assert bool(row["tokens_exact"]) is usage
        assert row["completion_tokens"] == 9
        await here.healthy()


# ---- streams that look odd and are sound ----

_WHOLE = stream(payloads()) + DONE
_SPLIT = [part for chunk in payloads() for part in (chunk[: len(chunk) // 2], chunk[len(chunk) // 2 :])]
SOUND: dict[str, Mode] = {
    "crlf": raw(HEAD, _WHOLE.replace(b"\n", b"\r\n")),
    "cr": raw(HEAD, _WHOLE.replace(b"\n", b"\r")),
    "data without a space": raw(HEAD, _WHOLE.replace(b"data: ", b"data:")),
    "comments": raw(HEAD, b": hello\n\n" + _WHOLE.replace(b"\n\n", b"\n\n: still here\n\n")),
    "other fields": raw(HEAD, _WHOLE.replace(b"data:", b"event: chunk\nid: 7\nretry: 5\ndata:")),
    "data over several lines": raw(
        HEAD,
        b"".join(event(chunk.replace(b', "choices"', b',\ndata: "choices"')) for chunk in payloads()) + DONE,
    ),
    "one byte at a time": raw(HEAD, *(bytes([byte]) for byte in _WHOLE)),
    "byte order mark": raw(HEAD, b"\xef\xbb\xbf" + _WHOLE),
    "chunks that come in two events": raw(HEAD, stream(_SPLIT) + DONE),
    "words between the chunks": raw(HEAD, _WHOLE.replace(b"\n\n", b"\n\ndata: ping\n\n", 5)),
    "another content type": raw(head("application/octet-stream"), _WHOLE),
    "no done": raw(HEAD, stream(payloads())),
    "no usage": raw(HEAD, stream(payloads()[:-1]) + DONE),
    "usage in every chunk": raw(
        HEAD,
        stream(
            document(choice({"content": piece}), usage={"prompt_tokens": 7, "completion_tokens": n + 1})
            for n, piece in enumerate(TEXT)
        )
        + stream([END, USAGE])
        + DONE,
    ),
}


@pytest.mark.parametrize("name", list(SOUND))
async def test_odd_but_sound(tmp_path: Path, name: str) -> None:
    async with site(tmp_path, SOUND[name], limits={"headers_s": 5, "first_token_s": 5}) as here:
        answer = await here.ask(stream=True)
        assert_whole(answer, TEXT)
        assert all('"usage":{' not in data for data in events(answer.text)) or "every" in name
        assert len(here.main.requests) == 1
        (row,) = here.gateway.rows()
        assert (row["outcome"], row["completion_tokens"]) == ("ok", 9)
        await here.healthy()


async def test_a_compressed_stream(tmp_path: Path) -> None:
    import gzip

    packed = raw(head("text/event-stream", "content-encoding: gzip"), gzip.compress(_WHOLE))
    async with site(tmp_path, packed) as here:
        assert_whole(await here.ask(stream=True), TEXT)


# ---- streams that are not ----

_BROKEN = b'data: {"id": "chatcmpl-odd", "choices": [{"index": 0, "delta": {"content": "lo\n\n'


async def test_a_broken_chunk_after_the_first_content(tmp_path: Path) -> None:
    """What it held is lost, and the rest would be an answer with a hole."""
    chunks = payloads()
    mode = raw(HEAD, stream(chunks[:4]), _BROKEN, stream(chunks[4:]), DONE)
    async with site(tmp_path, mode, OK) as here:
        answer = await here.ask(stream=True)
        assert_broken_off(answer, "안녕하세요, ", "upstream_malformed")
        assert len(here.second.requests) == 0
        await here.healthy()


async def test_a_broken_chunk_before_it_moves_on(tmp_path: Path) -> None:
    async with site(tmp_path, raw(HEAD, event(ROLE), _BROKEN, stream(payloads())), OK) as here:
        answer = await here.ask(stream=True)
        assert told(answer.text).startswith("You said") and events(answer.text)[-1] == "[DONE]"
        await here.healthy()


@BOTH
@pytest.mark.parametrize(
    "odd",
    [
        raw(HEAD, b"\x00\xff garbage \x16\x03\x01" * 50),
        raw(head("text/html"), b"<html>login</html>"),
        raw(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n\r\n", b"plain"
        ),
        raw(b"SSH-2.0-OpenSSH_9\r\n"),
        raw(HEAD, DONE),
    ],
    ids=["garbage", "html", "not gzip", "ssh", "only done"],
)
async def test_what_is_no_answer_moves_on(tmp_path: Path, odd: Mode, streamed: bool) -> None:
    async with site(tmp_path, odd, OK) as here:
        answer = await here.ask(stream=streamed)
        assert answer.status_code == 200, answer.text
        said = told(answer.text) if streamed else answer.json()["choices"][0]["message"]["content"]
        assert said.startswith("You said") and "garbage" not in answer.text
        assert (len(here.main.requests), len(here.second.requests)) == (1, 1)
        await here.healthy()


@BOTH
@pytest.mark.parametrize("code", [301, 302, 307, 308])
async def test_a_redirect_is_refused(tmp_path: Path, code: int, streamed: bool) -> None:
    async with site(tmp_path, OK) as here, rec.recording() as elsewhere:
        here.main.mode = rec.status(code, b"", location=f"{elsewhere.base_url}/chat/completions")
        answer = await here.ask(stream=streamed)
        assert answer.status_code == 502 and answer.json()["error"]["code"] == "upstream_status"
        assert elsewhere.connections == [] and len(here.main.requests) == 1
        await here.healthy()
