"""The settings of a local tier: the model in this process, or the servers elsewhere that serve it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from weighbridge.config.legal import (
    BLOCK_LEGAL,
    BLOCK_MAX,
    BLOCK_STEP,
    CPUS_PATTERN,
    LORA_RANK_LEGAL,
    MODEL_NAME_LEGAL,
    MODEL_NAME_PATTERN,
    AdapterFolder,
    Count,
    Dtype,
    LoraRank,
    ModelFolder,
    Quantization,
    Real,
    Secret,
    host_name,
    is_address,
    is_private,
    worker_endpoint,
)
from weighbridge.config.problems import wrong
from weighbridge.config.roads import LOCAL_ROADS
from weighbridge.config.section import Section, fill_secret
from weighbridge.config.shipped import shipped

LoraName = Annotated[str, StringConstraints(pattern=MODEL_NAME_PATTERN)]


class TierSettings(Section):
    """One local tier: its model and how vLLM runs it, or the servers that serve it elsewhere."""

    model_path: ModelFolder | None = shipped(
        "tiers.local-8b.model_path",
        "Folder of the model (with `config.json`). Null: the small embedded model.",
    )
    served_model_name: str | None = shipped(
        "tiers.local-8b.served_model_name",
        "Name shown for the model in `/v1/models` and the log. Null: the folder's name.",
        legal=MODEL_NAME_LEGAL,
        pattern=MODEL_NAME_PATTERN,
    )
    dtype: Dtype = shipped("tiers.local-8b.dtype", "Number type of weights and activations.")
    quantization: Quantization | None = shipped(
        "tiers.local-8b.quantization",
        "Quantization method. Null: what the model folder says, right for checkpoints that come quantized.",
    )
    max_model_len: Count = shipped(
        "tiers.local-8b.max_model_len",
        "Context window: tokens of prompt and answer together.",
        ge=16,
        le=10_485_760,
    )
    max_num_seqs: Count = shipped(
        "tiers.local-8b.max_num_seqs", "Sequences an engine runs at once.", ge=1, le=8192
    )
    max_num_batched_tokens: Count = shipped(
        "tiers.local-8b.max_num_batched_tokens",
        "Tokens the engine works on in one step; not below `max_num_seqs`.",
        ge=1,
        le=10_485_760,
    )
    block_size: Count = shipped(
        "tiers.local-8b.block_size",
        "Tokens a KV cache block.",
        legal=BLOCK_LEGAL,
        ge=BLOCK_STEP,
        le=BLOCK_MAX,
        multiple_of=BLOCK_STEP,
    )
    gpu_memory_utilization: Real = shipped(
        "tiers.local-8b.gpu_memory_utilization",
        "Share of the GPU's memory (of the machine's on CPU) the engine may take, weights and KV cache together.",
        gt=0,
        le=1,
    )
    kv_cache_memory_bytes: Count | None = shipped(
        "tiers.local-8b.kv_cache_memory_bytes",
        "Size of the KV cache in bytes; goes before `gpu_memory_utilization`. Null: what is left of that share.",
        ge=1 << 20,
    )
    tensor_parallel_size: Count = shipped(
        "tiers.local-8b.tensor_parallel_size", "GPUs the model is split over.", ge=1, le=64
    )
    replicas: Count = shipped(
        "tiers.local-8b.replicas",
        "Workers of this tier in this process, each an engine of its own with its own copy of the model.",
        ge=1,
        le=64,
    )
    devices: str | None = shipped(
        "tiers.local-8b.devices",
        "GPUs of this tier by number, such as `0` or `0,1`: as many as `tensor_parallel_size` times `replicas`, the "
        "first ones for the first replica. Null: the first ones, which tiers and replicas then share.",
        legal="text: GPU numbers such as '0' or '0,1'",
        pattern=r"^\d{1,3}(,\d{1,3})*$",
    )
    enforce_eager: bool = shipped(
        "tiers.local-8b.enforce_eager", "Run without CUDA graphs: starts sooner, answers slower."
    )
    enable_prefix_caching: bool = shipped(
        "tiers.local-8b.enable_prefix_caching", "Keep the KV blocks of prompt beginnings for later requests."
    )
    tool_parser: str | None = shipped(
        "tiers.local-8b.tool_parser",
        "vLLM's parser for this model's tool calls. Null: no tool calls on this tier.",
        legal="text of 1 to 64 letters, digits and . _ -",
        pattern=r"^[A-Za-z0-9._-]{1,64}$",
    )
    slots: Count | None = shipped(
        "tiers.local-8b.slots",
        "Requests a worker is given at once by the queue lock, at most one and a half times `max_num_seqs`. Null: "
        "`max_num_seqs` and a tenth more, so that the engine has the next one at hand when one ends.",
        ge=1,
    )
    max_waiting: Count = shipped(
        "tiers.local-8b.max_waiting",
        "Requests that may wait for a slot; the next one overflows at once, or the last of a tenant that has more "
        "waiting.",
        ge=0,
        le=100_000,
    )
    kv_gate: bool = shipped(
        "tiers.local-8b.kv_gate",
        "Reserve KV cache for a request (prompt and expected answer) before it is let in, so vLLM seldom preempts.",
    )
    kv_overcommit: Real = shipped(
        "tiers.local-8b.kv_overcommit",
        "Factor on the tokens the KV cache holds, for what `kv_gate` may reserve: above 1 where answers end early.",
        ge=0.1,
        le=10,
    )
    omp_cpus: str | None = shipped(
        "tiers.local-8b.omp_cpus",
        "CPU cores of an engine's threads (CPU backend only), such as `0-3`; two tiers should not share any. With "
        "`replicas`, one set for all or one each, such as `0-3;4-7`. Null: vLLM chooses.",
        legal="text: cores such as 0-3 or 0,2 (a | between the parts of a split model, a ; between replicas), auto or "
        "nobind",
        pattern=CPUS_PATTERN,
    )
    seed: Count = shipped("tiers.local-8b.seed", "Random seed of the engine.", ge=0, le=(1 << 32) - 1)
    lora_adapters: dict[LoraName, AdapterFolder] = shipped(
        "tiers.local-8b.lora_adapters",
        "LoRA adapters that answer on this tier: the model name to ask for, and the adapter's folder (with "
        "`adapter_config.json`).",
        legal="a mapping from names to folders",
        keys=f"{MODEL_NAME_LEGAL}, beginning with a letter or digit",
    )
    max_lora_rank: LoraRank = shipped(
        "tiers.local-8b.max_lora_rank", "Highest rank among the adapters.", legal=LORA_RANK_LEGAL
    )
    max_loras: Count = shipped(
        "tiers.local-8b.max_loras", "Adapters an engine answers with at once.", ge=1, le=1024
    )
    endpoints: tuple[Annotated[str, AfterValidator(worker_endpoint)], ...] = shipped(
        "tiers.local-8b.endpoints",
        "Base URLs of OpenAI-compatible servers on the private network that serve this tier (`vllm serve`, another "
        "gateway), such as `http://10.0.0.5:8000/v1`; each is a worker that gets raw text; no model is loaded here.",
        legal="a list of at most 64 http(s) URLs",
        max_length=64,
    )
    endpoint_model: str | None = shipped(
        "tiers.local-8b.endpoint_model",
        "Name of the model to ask those servers for; needed with `endpoints`.",
        legal="text of 1 to 256 printable ASCII characters without spaces",
        pattern=r"^[\x21-\x7e]{1,256}$",
    )
    endpoint_api_key: Secret | None = Field(
        default=None,
        description="Key of those servers. Environment only; in files use `endpoint_api_key_file`.",
    )
    endpoint_api_key_file: Path | None = shipped(
        "tiers.local-8b.endpoint_api_key_file", "File that holds the key of those servers."
    )
    trusted_endpoints: tuple[Annotated[str, AfterValidator(host_name)], ...] = shipped(
        "tiers.local-8b.trusted_endpoints",
        "Host names or addresses that may get raw text although they are neither loopback nor out of the private "
        "ranges (10/8, 172.16/12, 192.168/16, fc00::/7).",
        legal="a list of host names or IP addresses",
    )
    endpoint_connect_timeout_s: Real = shipped(
        "tiers.local-8b.endpoint_connect_timeout_s",
        "Seconds to connect to an endpoint, TLS included.",
        gt=0,
        le=300,
    )
    endpoint_idle_timeout_s: Real = shipped(
        "tiers.local-8b.endpoint_idle_timeout_s",
        "Seconds an endpoint may send nothing while it answers, the first byte included.",
        gt=0,
        le=3600,
    )

    @model_validator(mode="after")
    def _fits_together(self) -> TierSettings:
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise wrong("max_num_batched_tokens", f"must not be below max_num_seqs ({self.max_num_seqs})")
        most = self.max_num_seqs + self.max_num_seqs // 2
        if self.slots is not None and self.slots > most:
            # What the engine cannot run waits inside it, where no queue lock ends the wait.
            raise wrong("slots", f"must not be above {most}, one and a half times max_num_seqs")
        self._check_replicas()
        self._check_endpoints()
        fill_secret(self, "endpoint_api_key", "endpoint_api_key_file")
        return self

    def _check_replicas(self) -> None:
        if self.devices is not None:
            given = self.device_numbers
            if len(set(given)) != len(given):
                raise wrong("devices", "names a GPU twice")
            if len(given) != self.tensor_parallel_size * self.replicas:
                words = (
                    "tensor_parallel_size" if self.replicas == 1 else "tensor_parallel_size times replicas"
                )
                raise wrong("devices", f"must name {self.tensor_parallel_size * self.replicas} ({words})")
        if len(self._cpu_sets) not in (0, 1, self.replicas):
            raise wrong(
                "omp_cpus", f"must be one set of cores, or {self.replicas} (replicas) with a ; between them"
            )

    def _check_endpoints(self) -> None:
        if not self.endpoints:
            return
        if self.endpoint_model is None:
            raise wrong("endpoint_model", "is needed with endpoints: the name of the model to ask them for")
        # A setting that the servers cannot follow is refused rather than ignored.
        if self.model_path is not None:
            raise wrong("model_path", "must be null with endpoints: the model is loaded there")
        if self.replicas != 1:
            raise wrong("replicas", "must be 1 with endpoints: each endpoint is one worker")
        if self.lora_adapters:
            raise wrong("lora_adapters", "must be empty with endpoints: adapters are loaded there")
        for n, url in enumerate(self.endpoints):
            if url in self.endpoints[:n]:
                raise wrong(f"endpoints.{n}", "this URL is given twice")
            host = host_name(urlsplit(url).hostname or "")
            if is_address(host) and not is_private(host) and host not in self.trusted_endpoints:
                raise wrong(
                    f"endpoints.{n}",
                    "this address is neither loopback nor private: name it in trusted_endpoints if it may get raw text",
                )

    @property
    def device_numbers(self) -> tuple[int, ...]:
        """The tier's GPUs; empty where vLLM takes the first ones."""
        return () if self.devices is None else tuple(int(number) for number in self.devices.split(","))

    @property
    def slot_count(self) -> int:
        """The queue lock's slots on each worker."""
        return self.max_num_seqs + self.max_num_seqs // 10 if self.slots is None else self.slots

    @property
    def worker_count(self) -> int:
        """Workers of the tier: its endpoints, or else its replicas."""
        return len(self.endpoints) or self.replicas

    def for_replica(self, n: int) -> TierSettings:
        """The settings of one worker, as if it were the tier's only one.

        Args:
            n: from 0 to `worker_count` - 1.

        Raises:
            IndexError: there is no such worker.
        """
        if not 0 <= n < self.worker_count:
            raise IndexError(n)
        narrowed: dict[str, Any] = {"replicas": 1}
        if self.endpoints:
            narrowed["endpoints"] = self.endpoints[n : n + 1]
        if self.devices is not None:
            size = self.tensor_parallel_size
            narrowed["devices"] = ",".join(self.devices.split(",")[n * size : (n + 1) * size])
        if len(self._cpu_sets) > 1:
            narrowed["omp_cpus"] = self._cpu_sets[n]
        return self.model_copy(update=narrowed)

    @property
    def _cpu_sets(self) -> list[str]:
        return [] if self.omp_cpus is None else self.omp_cpus.split(";")


def without_absent(tiers: Any) -> Any:
    """`local-70b: null` in a file means that there is no such tier. The cheapest tier comes first."""
    if not isinstance(tiers, dict):
        return tiers
    order = [*LOCAL_ROADS, *(name for name in tiers if name not in LOCAL_ROADS)]
    return {name: tiers[name] for name in order if tiers.get(name) is not None}
