"""The only module that imports vLLM. Import it only when an engine is about to be built: it takes ten seconds.

Written against 0.32, kept to names that were the same from 0.30 to 0.33; `tests/contract` builds a real engine on it.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncGenerator, Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from weighbridge.config.offload import BODIES, is_small
from weighbridge.config.settings import TierSettings
from weighbridge.pool import vllm_env
from weighbridge.pool.engine import EngineStartFailed, EngineUnavailable
from weighbridge.pool.engine_body import INLINE_NODES
from weighbridge.pool.engine_stats import EngineStats
from weighbridge.pool.metering import Track
from weighbridge.pool.seam import Seam

vllm_env.apply()  # vLLM reads its environment while it is imported

from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: E402
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest  # noqa: E402
from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat  # noqa: E402
from vllm.entrypoints.openai.models.protocol import BaseModelPath, LoRAModulePath  # noqa: E402
from vllm.entrypoints.openai.models.serving import OpenAIServingModels  # noqa: E402
from vllm.entrypoints.serve.engine.protocol import ErrorResponse  # noqa: E402
from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS  # noqa: E402
from vllm.outputs import CompletionOutput, RequestOutput  # noqa: E402
from vllm.platforms import current_platform  # noqa: E402
from vllm.renderers.online_renderer import OnlineRenderer  # noqa: E402
from vllm.sampling_params import RequestOutputKind  # noqa: E402
from vllm.tool_parsers import ToolParserManager  # noqa: E402
from vllm.v1.engine.async_llm import AsyncLLM  # noqa: E402
from vllm.v1.engine.detokenizer import IncrementalDetokenizer  # noqa: E402
from vllm.v1.metrics.loggers import PrometheusStatLogger  # noqa: E402

__all__ = ["Chat", "ErrorResponse", "MeteredLLM", "build_chat", "build_engine", "on_cpu"]

_MANY_MESSAGES: Final = 200
"""Messages up to which a prompt is put together on the event loop; each takes some 5 µs."""

GATHER_TOKENS: Final = 16
"""Tokens a non-streamed answer passes at a time: few wake-ups, and the meter is never far behind."""


def on_cpu() -> bool:
    """Whether vLLM's engines run on the CPU."""
    return bool(current_platform.is_cpu())


def tool_parsers() -> list[str]:
    """Names of vLLM's tool parsers."""
    return sorted(ToolParserManager.list_registered())


def quantizations() -> list[str]:
    """Names of vLLM's quantization methods."""
    return sorted(QUANTIZATION_METHODS)


class MeteredLLM(AsyncLLM):  # type: ignore[misc]  # vLLM is not typed
    """vLLM's engine, which counts the tokens of the calls it has a `Track` for, and goes on with their trails."""

    tracks: dict[str, Track]
    """By vLLM's request id."""
    seams: dict[str, Seam]
    """Of the continuations that vLLM has not taken yet, by the same id."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.tracks, self.seams = {}, {}
        processor = self.output_processor
        register = processor.add_request

        def add_request(request: Any, *args: Any, **kwargs: Any) -> None:
            register(request, *args, **kwargs)
            # Here and not a step later: the first output may come before vLLM's own caller runs again.
            name = request.external_req_id
            track, state = self.tracks.get(name), processor.request_states[request.request_id]
            if track is not None:
                track.taken(state)
            seam = self.seams.pop(name, None)
            if seam is not None:
                seam.join(state)

        processor.add_request = add_request

    def __del__(self) -> None:
        # vLLM's own shuts the engine down, which we have done; at the interpreter's end it only fails loudly.
        pass

    def watch(self, died: Callable[[], None]) -> None:
        """Have `died` called in this event loop when the engine ends, idle or not, for whatever reason."""
        self._run_output_handler()
        self.output_handler.add_done_callback(lambda _: died())

    @property
    def kv_tokens(self) -> int | None:
        """Tokens that the KV cache holds."""
        cache = self.vllm_config.cache_config
        return None if cache.num_gpu_blocks is None else int(cache.num_gpu_blocks * cache.block_size)

    async def generate(
        self, prompt: Any, sampling_params: Any, request_id: str, **kwargs: Any
    ) -> AsyncGenerator[Any, None]:
        track = self.tracks.get(request_id)
        if track is None:
            # Closed between rendering and now: nobody waits for the answer.
            raise EngineUnavailable
        whole = sampling_params.output_kind == RequestOutputKind.FINAL_ONLY
        if whole:
            # The final output alone would leave a cancelled call's tokens uncounted.
            sampling_params.output_kind = RequestOutputKind.DELTA
            sampling_params.stream_interval = GATHER_TOKENS
        if track.confidence is not None and sampling_params.logprobs is None:
            # The chosen token's alone. The chat layer goes by the request and shows none.
            sampling_params.logprobs = 0
        seam = None
        if track.trail is not None and track.trail.token_ids:
            seam = Seam(self._detokenizer, prompt, sampling_params, track.trail)
            if seam.finish_reason is not None:
                track.finished = track.replaying = True
                yield _replay(request_id, seam)
                return
            prompt, sampling_params = seam.prompt, seam.params
            self.seams[request_id] = seam
        inner = super().generate(prompt, sampling_params, request_id, **kwargs)
        gathered: Any = None
        try:
            async for output in inner:
                track.passed(output)
                if seam is not None:
                    track.replaying = True
                    yield _replay(request_id, seam, output)
                    track.replaying, seam = False, None
                if not whole:
                    yield output
                    continue
                if gathered is None:
                    gathered = output
                else:
                    gathered.add(output, aggregate=True)
                if output.finished:
                    gathered.outputs.sort(key=lambda choice: choice.index)
                    yield gathered
        except BaseException as exc:
            if track.failure is None:
                track.failure = exc
            raise
        finally:
            self.seams.pop(request_id, None)
            track.settle()
            await inner.aclose()

    def _detokenizer(self, prompt_token_ids: list[int], params: Any) -> Any:
        request = SimpleNamespace(
            request_id="", sampling_params=params, prompt_token_ids=prompt_token_ids, prompt_embeds=None
        )
        return IncrementalDetokenizer.from_new_request(self.output_processor.tokenizer, request)


def _replay(request_id: str, seam: Seam, output: Any = None) -> RequestOutput:
    """The answer so far as one output, from which the chat layer takes its counts and its parser's state.

    Args:
        output: the first one of the continuation; None where nothing is left to make.
    """
    choice = CompletionOutput(
        index=0,
        text=seam.text,
        token_ids=seam.token_ids,
        cumulative_logprob=None,
        logprobs=[None] * len(seam.token_ids) if seam.with_logprobs else None,
        finish_reason=seam.finish_reason,
        stop_reason=seam.stop,
    )
    return RequestOutput(
        request_id=request_id,
        prompt=None,
        prompt_token_ids=seam.prompt_token_ids,
        prompt_logprobs=None,
        outputs=[choice],
        finished=seam.finish_reason is not None,
        num_cached_tokens=min(getattr(output, "num_cached_tokens", 0) or 0, len(seam.prompt_token_ids)),
        num_cache_creation_tokens=getattr(output, "num_cache_creation_tokens", 0),
    )


def build_engine(
    road: str,
    settings: TierSettings,
    model: Path,
    kv_cache_bytes: int | None,
    eager: bool,
    stats: EngineStats,
) -> MeteredLLM:
    """Load a model. Blocks for half a minute or more, so it belongs in a thread.

    Every flag that matters is given: inside a program vLLM's defaults are others than in `vllm serve`.
    """
    args = AsyncEngineArgs(
        model=str(model),
        served_model_name=road,
        dtype=settings.dtype,
        quantization=settings.quantization,
        max_model_len=settings.max_model_len,
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_num_queued_reqs=engine_wall(settings),
        block_size=settings.block_size,
        gpu_memory_utilization=settings.gpu_memory_utilization,
        kv_cache_memory_bytes=kv_cache_bytes,
        kv_cache_dtype="auto",
        tensor_parallel_size=settings.tensor_parallel_size,
        device_ids=list(settings.device_numbers) or None,
        pipeline_parallel_size=1,
        data_parallel_size=1,
        enforce_eager=eager,
        enable_prefix_caching=settings.enable_prefix_caching,
        enable_chunked_prefill=True,
        scheduling_policy="fcfs",
        stream_interval=1,
        seed=settings.seed,
        load_format="auto",
        use_tqdm_on_load=False,
        generation_config="auto",
        trust_remote_code=False,
        language_model_only=True,
        allowed_local_media_path="",
        **_lora(settings),
        enable_prompt_embeds=False,
        enable_sleep_mode=False,
        max_logprobs=20,
        otlp_traces_endpoint=None,
        enable_log_requests=False,
        disable_log_stats=True,
        shutdown_timeout=0,
    )
    engine = MeteredLLM.from_engine_args(args, stat_loggers=[_stat_logger(stats)])
    assert isinstance(engine, MeteredLLM)
    return engine


def _lora(settings: TierSettings) -> dict[str, Any]:
    held = len(settings.lora_adapters)
    if not held:
        return {"enable_lora": False}
    # Places that no adapter takes would cost memory; adapters out of use wait in the machine's own.
    places = min(settings.max_loras, held)
    if on_cpu():
        # vLLM's CPU kernels give a request without an adapter the last place's where the batch has one with: that place
        # must stay empty.
        places = held + 1
    return {
        "enable_lora": True,
        "max_loras": places,
        "max_cpu_loras": max(places, held),
        "max_lora_rank": settings.max_lora_rank,
    }


def engine_wall(settings: TierSettings) -> int:
    """Sequences vLLM itself takes before it refuses: the second wall behind the queue lock.

    A request with `n` choices counts `n` times there, so one of the largest must find room above full slots.
    """
    return settings.slot_count * 2 + 128


class Chat:
    """vLLM's OpenAI chat layer over one engine."""

    def __init__(self, engine: MeteredLLM, road: str, model: Path, tool_parser: str | None) -> None:
        shared: dict[str, Any] = {
            "request_logger": None,
            "chat_template": None,
            "chat_template_content_format": "auto",
            "trust_request_chat_template": False,
            "enable_auto_tools": tool_parser is not None,
            "tool_parser": tool_parser,
        }
        self._engine = engine
        self._models = OpenAIServingModels(
            engine_client=engine, base_model_paths=[BaseModelPath(name=road, model_path=str(model))]
        )
        self.renderer = OnlineRenderer(
            engine.model_config, engine.renderer, **_known(OnlineRenderer.__init__, shared)
        )
        self.renderer.warmup()
        self._render = self.renderer.render_chat
        self.renderer.render_chat = self._render_beside
        self.serving = OpenAIServingChat(
            engine,
            self._models,
            "assistant",
            online_renderer=self.renderer,
            **_known(
                OpenAIServingChat.__init__,
                {**shared, "enable_prompt_tokens_details": True, "enable_log_outputs": False},
            ),
        )

    async def _render_beside(self, request: Any) -> Any:
        """vLLM's rendering; it goes through the messages on the event loop, so many of them get a loop of their own."""
        if len(request.messages) <= _MANY_MESSAGES:
            return await self._render(request)
        return await BODIES.run(lambda: asyncio.run(self._render(request)))

    async def add_adapter(self, name: str, folder: Path) -> None:
        """Load a LoRA adapter; bodies may then ask for it as their `model`.

        Raises:
            EngineStartFailed: the engine has died over it.
            ValueError: it does not fit the model.
        """
        self._models.static_lora_modules = [LoRAModulePath(name=name, path=str(folder))]
        try:
            await self._models.init_static_loras()
        except ValueError:
            if self._engine.errored:
                raise EngineStartFailed("the engine died while it loaded an adapter") from None
            raise

    async def request(self, body: dict[str, Any]) -> Any:
        """Raises: pydantic's ValidationError or vLLM's VLLMClientError."""
        if is_small(body, nodes=INLINE_NODES, chars=sys.maxsize):
            return ChatCompletionRequest.model_validate(body)
        return await BODIES.run(ChatCompletionRequest.model_validate, body)

    async def create(self, request: Any) -> Any:
        """A response object, an `ErrorResponse`, or an async generator of event texts."""
        return await self.serving.create_chat_completion(request, None)

    async def prompt_tokens(self, request: Any) -> Any:
        """The prompt's token count, or an `ErrorResponse`."""
        rendered = await self.renderer.render_chat(request)
        if isinstance(rendered, ErrorResponse):
            return rendered
        _, (prompt,) = rendered
        return len(prompt["prompt_token_ids"])


def build_chat(engine: MeteredLLM, road: str, model: Path, tool_parser: str | None) -> Chat:
    """Put the chat layer on an engine.

    Raises:
        TypeError, KeyError, ValueError and others: the tool parser does not fit the model's tokenizer.
    """
    return Chat(engine, road, model, tool_parser)


def core_pids(engine: MeteredLLM) -> Iterable[int]:
    """Process numbers of the engine's cores; their workers are their children."""
    manager = getattr(getattr(engine.engine_core, "resources", None), "engine_manager", None)
    return [process.pid for process in getattr(manager, "processes", ()) if process.pid is not None]


def _known(function: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments this version of vLLM has."""
    names = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in names}


def _stat_logger(stats: EngineStats) -> type[PrometheusStatLogger]:
    """A stat logger class for one engine.

    Being a `PrometheusStatLogger`, it keeps vLLM from adding its own, whose constructor deletes the metrics of every
    other engine in the process.
    """

    class StatLogger(PrometheusStatLogger):  # type: ignore[misc]  # vLLM is not typed
        def __init__(self, vllm_config: Any, engine_indexes: Any = None) -> None:
            self.vllm_config = vllm_config
            self.engine_indexes = engine_indexes or [0]

        def record(
            self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0
        ) -> None:
            stats.record(scheduler_stats, iteration_stats)

        def log(self) -> None: ...

        def log_engine_initialized(self) -> None: ...

        def record_sleep_state(self, *args: Any, **kwargs: Any) -> None: ...

        def record_admission_rejection(self, reason: str) -> None: ...

    return StatLogger
