"""The only module that imports vLLM. Import it only when an engine is about to be built: it takes ten seconds.

Written against 0.32, kept to names that were the same from 0.30 to 0.33; `tests/contract` builds a real engine on it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import Any, Final

from weighbridge.config.settings import TierSettings
from weighbridge.observability.metrics import Metrics
from weighbridge.pool import vllm_env
from weighbridge.pool.engine import EngineUnavailable
from weighbridge.pool.engine_stats import EngineStats
from weighbridge.pool.metering import Track

vllm_env.apply()  # vLLM reads its environment while it is imported

from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: E402
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest  # noqa: E402
from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat  # noqa: E402
from vllm.entrypoints.openai.models.protocol import BaseModelPath  # noqa: E402
from vllm.entrypoints.openai.models.serving import OpenAIServingModels  # noqa: E402
from vllm.entrypoints.serve.engine.protocol import ErrorResponse  # noqa: E402
from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS  # noqa: E402
from vllm.platforms import current_platform  # noqa: E402
from vllm.renderers.online_renderer import OnlineRenderer  # noqa: E402
from vllm.sampling_params import RequestOutputKind  # noqa: E402
from vllm.tool_parsers import ToolParserManager  # noqa: E402
from vllm.v1.engine.async_llm import AsyncLLM  # noqa: E402
from vllm.v1.metrics.loggers import PrometheusStatLogger  # noqa: E402

__all__ = ["Chat", "ErrorResponse", "MeteredLLM", "build_chat", "build_engine", "on_cpu"]

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
    """vLLM's engine, which counts the tokens of the calls it has a `Track` for."""

    tracks: dict[str, Track]
    """By vLLM's request id. Set right after the engine is built."""

    def __del__(self) -> None:
        # vLLM's own shuts the engine down, which we have done; at the interpreter's end it only fails loudly.
        pass

    async def add_request(self, request_id: str, *args: Any, **kwargs: Any) -> Any:
        collector = await super().add_request(request_id, *args, **kwargs)
        track = self.tracks.get(request_id)
        if track is not None:
            processor = self.output_processor
            internal = processor.external_req_ids.get(request_id, ())
            track.taken([processor.request_states[name] for name in internal])
        return collector

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
        inner = super().generate(prompt, sampling_params, request_id, **kwargs)
        gathered: Any = None
        try:
            async for output in inner:
                track.passed(output)
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
            track.settle()
            await inner.aclose()


def build_engine(
    road: str,
    settings: TierSettings,
    model: Path,
    kv_cache_bytes: int | None,
    eager: bool,
    metrics: Metrics,
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
        enable_lora=False,
        enable_prompt_embeds=False,
        enable_sleep_mode=False,
        max_logprobs=20,
        otlp_traces_endpoint=None,
        enable_log_requests=False,
        disable_log_stats=True,
        shutdown_timeout=0,
    )
    engine = MeteredLLM.from_engine_args(args, stat_loggers=[_stat_logger(road, metrics)])
    engine.tracks = {}
    assert isinstance(engine, MeteredLLM)
    return engine


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
        models = OpenAIServingModels(
            engine_client=engine, base_model_paths=[BaseModelPath(name=road, model_path=str(model))]
        )
        self.renderer = OnlineRenderer(
            engine.model_config, engine.renderer, **_known(OnlineRenderer.__init__, shared)
        )
        self.renderer.warmup()
        self.serving = OpenAIServingChat(
            engine,
            models,
            "assistant",
            online_renderer=self.renderer,
            **_known(
                OpenAIServingChat.__init__,
                {**shared, "enable_prompt_tokens_details": True, "enable_log_outputs": False},
            ),
        )

    def request(self, body: dict[str, Any]) -> Any:
        """Raises: pydantic's ValidationError or vLLM's VLLMClientError."""
        return ChatCompletionRequest.model_validate(body)

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


def _stat_logger(road: str, metrics: Metrics) -> type[PrometheusStatLogger]:
    """A stat logger class for one engine.

    Being a `PrometheusStatLogger`, it keeps vLLM from adding its own, whose constructor deletes the metrics of every
    other engine in the process.
    """
    stats = EngineStats(road, metrics)

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
