"""The vLLM adapter over a chat layer that is stood in for: what vLLM says in text must come out as errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.engine_lab import chat, new_call
from tests.support.virtual_time import VirtualClock, run_virtual
from weighbridge.config.errors import ApiError, InvalidRequest
from weighbridge.config.settings import TierSettings
from weighbridge.pool import vllm_loading
from weighbridge.pool.engine import Engine, EngineStartFailed, EngineUnavailable, Trail
from weighbridge.pool.metering import Track
from weighbridge.pool.vllm_engine import VllmEngine

CHUNK = 'data: {"id":"x","choices":[]}\n\n'
DONE = "data: [DONE]\n\n"
ERROR = 'data: {"error": {"message": "SECRET", "code": 400}}\n\n'


class VLLMServerError(Exception): ...


class Core:
    """Stands in for vLLM's engine."""

    def __init__(self) -> None:
        self.tracks: dict[str, Track] = {}
        self.errored = False
        self.aborted: list[Any] = []
        self.shutdowns: list[float] = []
        self.output_handler = None
        self.sleeping: Callable[[], Any] = lambda: asyncio.sleep(0)

    async def abort(self, ids: Any) -> None:
        self.aborted.append(ids)

    def shutdown(self, timeout: float) -> None:
        self.shutdowns.append(timeout)

    def get_num_unfinished_requests(self) -> int:
        return len(self.tracks)

    def get_num_queued_tokens(self) -> int:
        return 0

    async def is_sleeping(self) -> None:
        await self.sleeping()


class ChatLayer:
    """Stands in for vLLM's chat layer: `script` gets the call's track and gives the answer."""

    def __init__(self, core: Core, script: Callable[[Track], Any]) -> None:
        self._core = core
        self._script = script
        self.closed = False

    async def request(self, body: dict[str, Any]) -> dict[str, Any]:
        return body

    async def create(self, request: dict[str, Any]) -> Any:
        await asyncio.sleep(0)
        made = self._script(self._core.tracks[f"chatcmpl-{request['request_id']}"])
        if isinstance(made, BaseException):
            raise made
        if isinstance(made, list):
            return self._events(made)
        return made

    async def _events(self, steps: list[Any]) -> AsyncGenerator[str, None]:
        try:
            for step in steps:
                if callable(step):
                    step()
                else:
                    yield step
        finally:
            self.closed = True


def make(
    monkeypatch: pytest.MonkeyPatch, script: Callable[[Track], Any], **fields: Any
) -> tuple[VllmEngine, Core, ChatLayer]:
    monkeypatch.setattr(vllm_loading, "check", lambda road, settings: None)
    engine = VllmEngine(TierSettings(**fields), "local-8b", VirtualClock())
    core = Core()
    layer = ChatLayer(core, script)
    engine._loaded = vllm_loading.Loaded(core, layer, ())  # type: ignore[arg-type]
    return engine, core, layer


def finish(track: Track) -> Callable[[], None]:
    def step() -> None:
        track.finished = True

    return step


def fail(track: Track, error: BaseException) -> Callable[[], None]:
    def step() -> None:
        track.failure = error

    return step


async def read(engine: Engine, events: list[bytes]) -> None:
    async for event in engine.stream(new_call(chat())):
        events.append(event)


def test_a_stream_that_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, core, layer = make(monkeypatch, lambda track: [CHUNK, finish(track), CHUNK, DONE])

    async def main() -> list[bytes]:
        events: list[bytes] = []
        await read(engine, events)
        return events

    assert run_virtual(main()) == [CHUNK.encode()] * 2
    assert layer.closed and core.tracks == {} and core.aborted == []


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        (lambda track: [CHUNK, fail(track, VLLMServerError("SECRET")), ERROR, DONE], EngineUnavailable),
        (lambda track: [CHUNK, fail(track, InvalidRequest("Ours.")), ERROR, DONE], InvalidRequest),
        (lambda track: [CHUNK, ERROR, DONE], EngineUnavailable),
        (lambda track: [CHUNK, finish(track), ERROR, DONE], EngineUnavailable),
        (lambda track: [CHUNK, DONE], EngineUnavailable),
        (lambda track: [CHUNK, finish(track)], EngineUnavailable),
        (lambda track: [CHUNK], EngineUnavailable),
        (lambda track: [CHUNK, fail(track, VLLMServerError()), CHUNK, DONE], EngineUnavailable),
    ],
)
def test_a_stream_that_ends_badly_raises_and_yields_no_error(
    monkeypatch: pytest.MonkeyPatch, steps: Callable[[Track], Any], kind: type[ApiError]
) -> None:
    engine, core, layer = make(monkeypatch, steps)

    async def main() -> None:
        events: list[bytes] = []
        with pytest.raises(kind) as caught:
            await read(engine, events)
        assert "SECRET" not in str(caught.value)
        assert events == [CHUNK.encode()]
        assert layer.closed and core.tracks == {}

    run_virtual(main())


def test_a_stream_that_is_empty_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _, _ = make(monkeypatch, lambda track: [])

    async def main() -> None:
        with pytest.raises(EngineUnavailable):
            await read(engine, [])

    run_virtual(main())


@pytest.mark.parametrize("way", ["complete", "stream"])
def test_errors_that_are_returned_and_errors_that_are_raised(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    returned = SimpleNamespace(error=SimpleNamespace(code=400, message="SECRET", param="user"))

    async def ask(script: Callable[[Track], Any]) -> ApiError:
        engine, core, _ = make(monkeypatch, script)
        with pytest.raises(ApiError) as caught:
            if way == "complete":
                await engine.complete(new_call(chat()))
            else:
                await read(engine, [])
        assert core.tracks == {} and len(core.aborted) == 1
        assert "SECRET" not in str(caught.value) and caught.value.__cause__ is None
        return caught.value

    async def main() -> None:
        assert (await ask(lambda track: returned)).param == "user"
        assert isinstance(await ask(lambda track: ValueError("SECRET")), InvalidRequest)
        assert isinstance(await ask(lambda track: VLLMServerError("SECRET")), EngineUnavailable)

    run_virtual(main())


def test_a_completion(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(track: Track) -> Any:
        track.finished = True
        return SimpleNamespace(model_dump_json=lambda: json.dumps({"id": "x"}))

    engine, core, _ = make(monkeypatch, script)
    assert run_virtual(engine.complete(new_call(chat()))) == b'{"id": "x"}'
    assert core.tracks == {} and core.aborted == []


def test_a_cancellation_that_the_chat_layer_swallowed_is_still_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(track: Track) -> Any:
        track.failure = asyncio.CancelledError()
        return SimpleNamespace(error=SimpleNamespace(code=400, message="Client disconnected", param=None))

    engine, core, _ = make(monkeypatch, script)

    async def main() -> None:
        with pytest.raises(asyncio.CancelledError):
            await engine.complete(new_call(chat()))

    run_virtual(main())
    assert core.tracks == {} and len(core.aborted) == 1


def test_an_answer_without_an_end_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _, _ = make(monkeypatch, lambda track: SimpleNamespace(model_dump_json=lambda: "{}"))

    async def main() -> None:
        with pytest.raises(EngineUnavailable):
            await engine.complete(new_call(chat()))

    run_virtual(main())


def test_two_calls_under_one_id_are_a_fault_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _, _ = make(monkeypatch, lambda track: [CHUNK, DONE])
    call = new_call(chat())

    async def main() -> None:
        first = engine.stream(call)
        await anext(first)
        with pytest.raises(RuntimeError):
            await engine.complete(call)
        await first.aclose()

    run_virtual(main())


def test_the_probe_finds_a_core_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, core, _ = make(monkeypatch, lambda track: [])

    async def broken() -> None:
        raise VLLMServerError("dead")

    async def main() -> None:
        assert await engine.probe(2.0)
        core.sleeping = lambda: asyncio.sleep(100)
        assert not await engine.probe(2.0)
        assert asyncio.get_running_loop().time() == 2.0
        core.sleeping = broken
        assert not await engine.probe(2.0)
        core.errored = True
        assert not engine.alive
        with pytest.raises(EngineUnavailable):
            await engine.complete(new_call(chat()))

    run_virtual(main())


def test_closing_aborts_what_runs_and_waits_for_it_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, core, _ = make(monkeypatch, lambda track: [])

    async def main() -> None:
        core.tracks["chatcmpl-stuck"] = Track(new_call(chat()).meter)
        engine._idle.clear()
        first = asyncio.create_task(engine.close(3.0))
        await asyncio.sleep(0)
        await engine.close(9.0)
        assert core.shutdowns == [3.0], "whoever closes too waits for the end as well"
        await first
        await engine.close(1.0)

    run_virtual(main())
    assert core.aborted == [["chatcmpl-stuck"]] * 2
    assert core.shutdowns == [3.0]
    assert not engine.alive


def chunk(created: int = 60, **delta: Any) -> str:
    choices = [{"index": 0, "delta": delta, "finish_reason": None}]
    return f"data: {json.dumps({'created': created, 'choices': choices}, separators=(',', ':'))}\n\n"


def passes(track: Track, *tokens: int) -> Callable[[], None]:
    def step() -> None:
        track.unsent += tokens

    return step


def test_a_stream_keeps_its_trail_and_a_continuation_begins_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def first(track: Track) -> list[Any]:
        steps = [passes(track, 5), chunk(role="assistant", content=""), chunk(content="ab"), passes(track, 6)]
        return [*steps, fail(track, VLLMServerError()), chunk(content="never sent")]

    def second(track: Track) -> list[Any]:
        def replay() -> None:
            assert track.trail is not None and track.trail.token_ids == [5]
            track.replaying = True

        def make() -> None:
            track.replaying = False
            track.unsent.append(6)

        again = [replay, chunk(61, role="assistant", content=""), chunk(61, content="ab")]
        return [*again, make, chunk(61, content="c"), finish(track), DONE]

    async def main() -> None:
        trail = Trail()
        engine, _, _ = make(monkeypatch, first)
        events: list[bytes] = []
        call = new_call(chat(), trail=trail)
        with pytest.raises(EngineUnavailable):
            async for event in engine.stream(call):
                events.append(event)
        assert events == [chunk(role="assistant", content="").encode(), chunk(content="ab").encode()]
        assert trail == Trail(token_ids=[5], text_chars=2, created=60)

        engine, _, _ = make(monkeypatch, second)
        call = new_call(chat(), name=call.request_id, trail=trail)
        assert [event async for event in engine.stream(call)] == [chunk(60, content="c").encode()]
        assert trail == Trail(token_ids=[5, 6], text_chars=3, created=60)

    run_virtual(main())


def test_an_adapter_answers_under_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    asked: list[str] = []

    def script(track: Track) -> Any:
        track.finished = True
        return SimpleNamespace(model_dump_json=lambda: "{}")

    async def main() -> None:
        engine, _, layer = make(monkeypatch, script, lora_adapters={"law": tmp_path})

        async def request(body: dict[str, Any]) -> dict[str, Any]:
            asked.append(body["model"])
            return body

        monkeypatch.setattr(layer, "request", request)
        await engine.complete(new_call(chat()))
        await engine.complete(new_call(chat(), adapter="law"))
        for name in ("local-8b", "care"):
            with pytest.raises(ApiError) as caught:
                await engine.complete(new_call(chat(), adapter=name))
            assert (caught.value.status, caught.value.code) == (404, "model_not_found")
            assert name not in caught.value.message

    run_virtual(main())
    assert asked == ["local-8b", "law"]


def test_what_it_has_made_is_known_after_it_was_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(track: Track) -> Any:
        track.tally.made += 7
        track.finished = True
        return SimpleNamespace(model_dump_json=lambda: "{}")

    async def main() -> None:
        engine, _, _ = make(monkeypatch, script)
        await engine.complete(new_call(chat()))
        await engine.complete(new_call(chat()))
        assert engine.load().made == 14
        await engine.close(0.0)
        assert engine.load().made == 14

    run_virtual(main())


def test_closed_before_it_was_started_it_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_loading, "check", lambda road, settings: None)

    async def main() -> None:
        engine = VllmEngine(TierSettings(), "local-8b", VirtualClock())
        assert engine.alive
        await engine.close(1.0)
        with pytest.raises(EngineStartFailed):
            await engine.start()
        assert (engine.load().unfinished, await engine.probe(1.0)) == (0, False)
        await engine.abort("nobody")

    run_virtual(main())
