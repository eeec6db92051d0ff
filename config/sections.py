"""The sections of the settings. Every default comes from `defaults.yaml`, every legal value is checked here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from weighbridge.config.legal import (
    BLOCK_LEGAL,
    BLOCK_MAX,
    BLOCK_STEP,
    CPUS_PATTERN,
    NAME_LEGAL,
    NAME_PATTERN,
    AnyPath,
    Count,
    Dtype,
    ExistingFile,
    ModelFolder,
    Quantization,
    Real,
    Secret,
    endpoint,
    read_secret,
)
from weighbridge.config.problems import wrong
from weighbridge.config.roads import LOCAL_ROADS
from weighbridge.config.shipped import shipped

SHA256_LEGAL = "the SHA-256 of the key as 64 hexadecimal digits"


class Section(BaseModel):
    """What all sections share: unknown keys are refused, nothing changes after the start."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True, hide_input_in_errors=True
    )


class ServerSettings(Section):
    """The HTTP server."""

    host: str = shipped(
        "server.host",
        "Address to listen on. Anything but loopback needs `auth.keys`.",
        legal="a host name or an IP address",
        pattern=r"^[A-Za-z0-9.:_-]{1,255}$",
    )
    port: Count = shipped("server.port", "TCP port; 0 takes any free one.", ge=0, le=65535)
    max_body_bytes: Count = shipped(
        "server.max_body_bytes", "Largest request body, in bytes; a larger one gets 413.", ge=1024, le=1 << 30
    )
    drain_timeout_s: Real = shipped(
        "server.drain_timeout_s",
        "Seconds that answers under way get to finish when the gateway is told to stop.",
        ge=0,
        le=3600,
    )
    request_timeout_s: Real = shipped(
        "server.request_timeout_s", "Seconds a request may take in all, queueing included.", gt=0, le=86400
    )
    slow_reader_timeout_s: Real = shipped(
        "server.slow_reader_timeout_s",
        "Seconds a caller may leave an answer unread before the request is aborted and recorded.",
        gt=0,
        le=3600,
    )
    tls_certfile: ExistingFile | None = shipped(
        "server.tls_certfile", "PEM certificate chain. Both TLS files or neither."
    )
    tls_keyfile: ExistingFile | None = shipped("server.tls_keyfile", "PEM private key of the certificate.")

    @model_validator(mode="after")
    def _tls_whole(self) -> ServerSettings:
        if (self.tls_certfile is None) != (self.tls_keyfile is None):
            given, absent = ("tls_certfile", "tls_keyfile")
            if self.tls_certfile is None:
                given, absent = absent, given
            raise wrong(given, f"needs server.{absent} as well: TLS takes both files or neither")
        return self


class AdminKey(Section):
    """A key for the admin API."""

    id: str = Field(
        description="Name of the key in records and logs.",
        pattern=NAME_PATTERN,
        json_schema_extra={"legal": NAME_LEGAL},
    )
    sha256: str = Field(
        description="SHA-256 of the key, as 64 hexadecimal digits. The key itself is stored nowhere.",
        pattern=r"^[0-9A-Fa-f]{64}$",
        json_schema_extra={"legal": SHA256_LEGAL, "hidden": True},
    )

    @property
    def digest(self) -> bytes:
        """The 32 bytes of the hash."""
        return bytes.fromhex(self.sha256)


class ApiKey(AdminKey):
    """A key for the completions API, and whose it is."""

    tenant: str = Field(
        default="default",
        description="Tenant of the key; the policy's tenant rules and the usage records go by it.",
        pattern=NAME_PATTERN,
        json_schema_extra={"legal": NAME_LEGAL},
    )


class AuthSettings(Section):
    """Who may call."""

    keys: tuple[ApiKey, ...] = shipped(
        "auth.keys", "API keys. With none, the gateway listens on loopback only and takes every caller."
    )
    admin_keys: tuple[AdminKey, ...] = shipped(
        "auth.admin_keys", "Keys of the admin API, apart from the others."
    )

    @model_validator(mode="after")
    def _all_different(self) -> AuthSettings:
        _different("keys", self.keys)
        _different("admin_keys", self.admin_keys)
        ordinary = {key.digest for key in self.keys}
        for n, key in enumerate(self.admin_keys):
            if key.digest in ordinary:
                raise wrong(f"admin_keys.{n}.sha256", "an admin key must not be an API key as well")
        return self


def _different(field: str, keys: Sequence[AdminKey]) -> None:
    ids: set[str] = set()
    digests: set[bytes] = set()
    for n, key in enumerate(keys):
        if key.id in ids:
            raise wrong(f"{field}.{n}.id", "this id is given twice")
        if key.digest in digests:
            raise wrong(f"{field}.{n}.sha256", "this key is given twice")
        ids.add(key.id)
        digests.add(key.digest)


class TierSettings(Section):
    """One local tier: its model and how vLLM runs it."""

    model_path: ModelFolder | None = shipped(
        "tiers.local-8b.model_path",
        "Folder of the model (with `config.json`). Null: the small embedded model.",
    )
    served_model_name: str | None = shipped(
        "tiers.local-8b.served_model_name",
        "Name shown for the model in `/v1/models` and the log. Null: the folder's name.",
        legal="text of 1 to 128 letters, digits and . _ / : -",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._/:-]{0,127}$",
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
        "tiers.local-8b.max_num_seqs", "Sequences the engine runs at once.", ge=1, le=8192
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
    devices: str | None = shipped(
        "tiers.local-8b.devices",
        "GPUs of this tier by number, such as `0` or `0,1`: as many as `tensor_parallel_size`. Null: the first ones, "
        "which two tiers then share.",
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
        "Requests let in at once by the queue lock, at most one and a half times `max_num_seqs`. Null: `max_num_seqs`.",
        ge=1,
    )
    max_waiting: Count = shipped(
        "tiers.local-8b.max_waiting",
        "Requests that may wait for a slot; the next one overflows at once.",
        ge=0,
        le=100_000,
    )
    omp_cpus: str | None = shipped(
        "tiers.local-8b.omp_cpus",
        "CPU cores of the engine's threads (CPU backend only), such as `0-3`; two tiers should not share any. "
        "Null: vLLM chooses.",
        legal="text: cores such as 0-3 or 0,2 (a | between workers), auto or nobind",
        pattern=CPUS_PATTERN,
    )
    seed: Count = shipped("tiers.local-8b.seed", "Random seed of the engine.", ge=0, le=(1 << 32) - 1)

    @model_validator(mode="after")
    def _fits_together(self) -> TierSettings:
        if self.max_num_batched_tokens < self.max_num_seqs:
            raise wrong("max_num_batched_tokens", f"must not be below max_num_seqs ({self.max_num_seqs})")
        most = self.max_num_seqs + self.max_num_seqs // 2
        if self.slots is not None and self.slots > most:
            # What the engine cannot run waits inside it, where no queue lock ends the wait.
            raise wrong("slots", f"must not be above {most}, one and a half times max_num_seqs")
        if self.devices is not None:
            given = self.device_numbers
            if len(set(given)) != len(given):
                raise wrong("devices", "names a GPU twice")
            if len(given) != self.tensor_parallel_size:
                raise wrong("devices", f"must name {self.tensor_parallel_size} (tensor_parallel_size)")
        return self

    @property
    def device_numbers(self) -> tuple[int, ...]:
        """The tier's GPUs; empty where vLLM takes the first ones."""
        return () if self.devices is None else tuple(int(number) for number in self.devices.split(","))

    @property
    def slot_count(self) -> int:
        """The queue lock's slots."""
        return self.max_num_seqs if self.slots is None else self.slots


class PoolSettings(Section):
    """Starting and stopping the local engines."""

    start_timeout_s: Real = shipped(
        "pool.start_timeout_s", "Seconds a tier may take to load its model and warm up.", gt=0, le=86400
    )
    close_grace_s: Real = shipped(
        "pool.close_grace_s", "Seconds an engine gets to end by itself before it is killed.", ge=0, le=600
    )


class CommercialSettings(Section):
    """The commercial API, one of the two switches of egress."""

    base_url: Annotated[str, AfterValidator(endpoint)] | None = shipped(
        "commercial.base_url",
        "Base URL of an OpenAI-compatible API, such as `https://api.example.com/v1`. Null: none, so nothing leaves.",
        legal="an http(s) URL",
    )
    model: str = shipped(
        "commercial.model",
        "Model name sent to that API; needed with `base_url`.",
        legal="text of at most 256 printable ASCII characters without spaces",
        pattern=r"^[\x21-\x7e]{0,256}$",
    )
    api_key: Secret | None = Field(
        default=None, description="Key of that API. Environment only; in files use `api_key_file`."
    )
    api_key_file: Path | None = shipped("commercial.api_key_file", "File that holds the key of that API.")
    connect_timeout_s: Real = shipped(
        "commercial.connect_timeout_s", "Seconds to connect, TLS included.", gt=0, le=300
    )
    first_byte_timeout_s: Real = shipped(
        "commercial.first_byte_timeout_s",
        "Seconds from the sent request to the first byte of the answer.",
        gt=0,
        le=3600,
    )
    idle_timeout_s: Real = shipped(
        "commercial.idle_timeout_s", "Seconds between two pieces of an answer.", gt=0, le=3600
    )
    total_timeout_s: Real = shipped(
        "commercial.total_timeout_s", "Seconds the whole exchange may take.", gt=0, le=86400
    )
    max_context_tokens: Count | None = shipped(
        "commercial.max_context_tokens",
        "Context window of that model in tokens. Null: not known, not checked.",
        ge=1,
    )

    @model_validator(mode="after")
    def _complete(self) -> CommercialSettings:
        if self.base_url is not None and not self.model:
            raise wrong("model", "is needed with commercial.base_url: the model name sent to that API")
        _fill_secret(self, "api_key", "api_key_file")
        return self


class PolicySettings(Section):
    """Which routing policy is in force."""

    file: AnyPath | None = shipped("policies.file", "Policy file. Null: the shipped policy called `name`.")
    name: Literal["default", "on-prem-only"] = shipped(
        "policies.name", "Shipped policy used when there is no `file`."
    )
    poll_interval_s: Real = shipped(
        "policies.poll_interval_s",
        "Seconds between two looks at the policy file; a change is in force after it was read the same twice.",
        ge=0.05,
        le=3600,
    )


class MaskingSettings(Section):
    """The detectors that stand before everything that leaves."""

    workers: Count = shipped("masking.workers", "Masking processes.", ge=1, le=64)
    task_timeout_s: Real = shipped(
        "masking.task_timeout_s",
        "Seconds one request may take to mask; after that it does not leave.",
        gt=0,
        le=600,
    )
    max_queue: Count = shipped(
        "masking.max_queue",
        "Requests that may wait for a masking process; the next one does not leave.",
        ge=1,
        le=100_000,
    )
    max_chars: Count = shipped(
        "masking.max_chars",
        "Characters of text in one request; a longer one does not leave.",
        ge=1,
        le=100_000_000,
    )
    score_threshold: Real = shipped(
        "masking.score_threshold", "Detector confidence from which a finding is masked.", ge=0, le=1
    )
    secret: Secret | None = Field(
        default=None,
        description="Key the placeholders are derived from, 16 characters or more. Environment only; in files use "
        "`secret_file`. None: a new random one in every process.",
    )
    secret_file: Path | None = shipped("masking.secret_file", "File that holds `masking.secret`.")

    @model_validator(mode="after")
    def _long_enough(self) -> MaskingSettings:
        _fill_secret(self, "secret", "secret_file")
        if self.secret is not None and len(self.secret.get_secret_value()) < 16:
            raise wrong(
                "secret" if self.secret_file is None else "secret_file", "must hold 16 characters or more"
            )
        return self


def _fill_secret(section: CommercialSettings | MaskingSettings, field: str, file_field: str) -> None:
    """Read the secret from its file, so that nobody else has to know where it came from."""
    path: Path | None = getattr(section, file_field)
    if path is None:
        return
    if getattr(section, field) is not None:
        raise wrong(file_field, f"stands beside {field}: give one of them")
    try:
        secret: SecretStr = read_secret(path.expanduser())
    except (ValueError, RuntimeError) as exc:
        raise wrong(file_field, str(exc)) from None
    object.__setattr__(section, field, secret)  # the section is frozen for everybody else


def without_absent(tiers: Any) -> Any:
    """`local-70b: null` in a file means that there is no such tier. The cheapest tier comes first."""
    if not isinstance(tiers, dict):
        return tiers
    order = [*LOCAL_ROADS, *(name for name in tiers if name not in LOCAL_ROADS)]
    return {name: tiers[name] for name in order if tiers.get(name) is not None}
