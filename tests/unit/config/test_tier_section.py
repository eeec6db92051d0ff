"""A tier's settings: replicas, endpoints, adapters, and what each worker gets of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tests.unit.config.loading import load, wrong
from weighbridge.config.legal import LORA_RANKS
from weighbridge.config.settings import PoolSettings, Settings, TierSettings, effective, load_settings

ENDPOINT = {"endpoints": ["http://10.0.0.5:8000/v1"], "endpoint_model": "m"}
LORA_NAME = (
    "this name must be text of 1 to 128 letters, digits and . _ / : -, beginning with a letter or digit"
)


def tier(**fields: Any) -> TierSettings:
    return load_settings(env={"HOME": "/h"}, overrides={"tiers": {"local-8b": fields}}).tiers["local-8b"]


def refused(tmp_path: Path, **fields: Any) -> str:
    (line,) = wrong(tmp_path, overrides={"tiers": {"local-8b": fields}})
    assert line.startswith("command line: tiers.local-8b.")
    return line.removeprefix("command line: tiers.local-8b.")


def adapter(tmp_path: Path, name: str = "adapter") -> Path:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "adapter_config.json").write_text("{}")
    return folder


@pytest.mark.parametrize(("sequences", "slots"), [(1, 1), (9, 9), (10, 11), (64, 70), (256, 281)])
def test_slots_are_the_sequences_and_a_tenth(sequences: int, slots: int) -> None:
    assert TierSettings(max_num_seqs=sequences).slot_count == slots


def test_slots_that_are_given_are_taken() -> None:
    assert TierSettings(max_num_seqs=10, slots=15).slot_count == 15
    assert TierSettings(max_num_seqs=10, slots=2).slot_count == 2


# --- replicas


def test_a_tier_is_one_worker_unless_it_says_otherwise() -> None:
    alone = TierSettings(devices="3", omp_cpus="0-3")
    assert (alone.replicas, alone.worker_count) == (1, 1)
    assert alone.for_replica(0) == alone
    with pytest.raises(IndexError):
        alone.for_replica(1)
    with pytest.raises(IndexError):
        alone.for_replica(-1)


def test_each_replica_gets_its_gpus_and_cores_in_order() -> None:
    whole = tier(replicas=2, tensor_parallel_size=2, devices="4,1,0,7", omp_cpus="0-3|4-7;8,9", seed=5)
    assert whole.worker_count == 2
    parts = [whole.for_replica(n) for n in range(2)]
    assert [part.device_numbers for part in parts] == [(4, 1), (0, 7)]
    assert [part.omp_cpus for part in parts] == ["0-3|4-7", "8,9"]
    assert {(part.replicas, part.seed, part.tensor_parallel_size) for part in parts} == {(1, 5, 2)}
    again = TierSettings.model_validate(parts[1].model_dump())
    assert again == parts[1], "what a worker gets is right by itself"


def test_one_set_of_cores_is_shared_and_no_devices_stay_none() -> None:
    whole = tier(replicas=3, omp_cpus="0-3")
    assert [whole.for_replica(n).omp_cpus for n in range(3)] == ["0-3"] * 3
    assert whole.for_replica(2).devices is None
    assert tier(replicas=2).for_replica(1).omp_cpus is None


def test_replicas_that_do_not_add_up(tmp_path: Path) -> None:
    assert refused(tmp_path, replicas=0) == "replicas: must be a whole number between 1 and 64"
    assert refused(tmp_path, replicas=2, devices="0") == (
        "devices: must name 2 (tensor_parallel_size times replicas)"
    )
    assert (
        refused(tmp_path, replicas=2, tensor_parallel_size=2, devices="0,1,2,2")
        == "devices: names a GPU twice"
    )
    assert refused(tmp_path, devices="0,1") == "devices: must name 1 (tensor_parallel_size)"
    assert refused(tmp_path, replicas=3, omp_cpus="0;1") == (
        "omp_cpus: must be one set of cores, or 3 (replicas) with a ; between them"
    )
    assert refused(tmp_path, omp_cpus="0;1") == (
        "omp_cpus: must be one set of cores, or 1 (replicas) with a ; between them"
    )


@pytest.mark.parametrize("cores", ["0;", ";0", "0;;1", "0-3;all", "0-3 ;4"])
def test_cores_that_cannot_be_read(tmp_path: Path, cores: str) -> None:
    assert refused(tmp_path, replicas=2, omp_cpus=cores).startswith("omp_cpus: must be text: cores such as")


# --- the gate


def test_the_kv_gate_is_on_and_has_a_factor(tmp_path: Path) -> None:
    assert (TierSettings().kv_gate, TierSettings().kv_overcommit) == (True, 1.0)
    assert tier(kv_gate=False, kv_overcommit=2.5).kv_overcommit == 2.5
    for factor in (0.09, 10.1):
        assert refused(tmp_path, kv_overcommit=factor) == "kv_overcommit: must be a number between 0.1 and 10"


# --- endpoints


def test_each_endpoint_is_a_worker() -> None:
    made = tier(endpoints=["http://10.0.0.5:8000/v1/", "https://gpu-2.internal/v1"], endpoint_model="org/m")
    assert made.endpoints == ("http://10.0.0.5:8000/v1", "https://gpu-2.internal/v1")
    assert made.worker_count == 2
    assert [made.for_replica(n).endpoints for n in range(2)] == [(url,) for url in made.endpoints]
    assert (made.endpoint_connect_timeout_s, made.endpoint_idle_timeout_s) == (3, 60)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "[::1]",
        "10.1.2.3",
        "172.31.0.1",
        "192.168.9.9",
        "[fd00::1]",
        "[::ffff:10.0.0.1]",
        "node-1",
    ],
)
def test_endpoints_on_the_private_network(host: str) -> None:
    assert tier(endpoints=[f"http://{host}:8000/v1"], endpoint_model="m").worker_count == 1


@pytest.mark.parametrize(
    "host",
    [
        "8.8.8.8",
        "172.32.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "11.0.0.1",
        "[fe80::1]",
        "0.0.0.0",
        "[2001:db8::1]",
        "[::ffff:8.8.8.8]",
    ],
)
def test_an_address_outside_must_be_trusted_by_name(tmp_path: Path, host: str) -> None:
    fields = {"endpoints": ["http://10.0.0.1/v1", f"http://{host}:8000/v1"], "endpoint_model": "m"}
    assert refused(tmp_path, **fields) == (
        "endpoints[1]: this address is neither loopback nor private: name it in trusted_endpoints if it may get raw "
        "text"
    )
    assert tier(**fields, trusted_endpoints=[host.strip("[]")]).worker_count == 2


def test_trusted_hosts_are_compared_in_one_form(tmp_path: Path) -> None:
    made = tier(trusted_endpoints=["GPU.Example.com.", "2001:DB8:0::1", "8.8.8.8"])
    assert made.trusted_endpoints == ("gpu.example.com", "2001:db8::1", "8.8.8.8")
    for text in ("http://h", "h:80", "", "a b", "[::1]", "10.0.0.0/8", "-h", "호스트"):
        assert refused(tmp_path, trusted_endpoints=[text]) == (
            "trusted_endpoints[0]: must be a host name or an IP address, without scheme and port"
        )


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        (
            {"endpoints": ["http://h/v1"]},
            "endpoint_model: is needed with endpoints: the name of the model to ask them for",
        ),
        ({**ENDPOINT, "replicas": 2}, "replicas: must be 1 with endpoints: each endpoint is one worker"),
        ({**ENDPOINT, "endpoints": ["http://h/v1", "http://h/v1/"]}, "endpoints[1]: this URL is given twice"),
        (
            {**ENDPOINT, "endpoints": ["ftp://h"]},
            "endpoints[0]: must begin with http:// or https:// and a host name",
        ),
        (
            {**ENDPOINT, "endpoints": ["http://u:hush@h"]},
            "endpoints[0]: must hold no user name or password: use endpoint_api_key_file",
        ),
        ({**ENDPOINT, "endpoints": ["http://[fe80::1%25a/]"]}, "endpoints[0]: is not a URL"),
        ({**ENDPOINT, "endpoints": ["http://a,b/v1"]}, "endpoints[0]: must name a host or an IP address"),
        (
            {**ENDPOINT, "endpoints": ["http://h/v1"] * 65},
            "endpoints: must be a list of at most 64 http(s) URLs",
        ),
        (
            {**ENDPOINT, "endpoint_model": "a b"},
            "endpoint_model: must be text of 1 to 256 printable ASCII characters without spaces",
        ),
        (
            {**ENDPOINT, "endpoint_connect_timeout_s": 0},
            "endpoint_connect_timeout_s: must be a number above 0 and not above 300",
        ),
        (
            {**ENDPOINT, "endpoint_idle_timeout_s": 3601},
            "endpoint_idle_timeout_s: must be a number above 0 and not above 3600",
        ),
    ],
)
def test_endpoints_that_cannot_be(tmp_path: Path, fields: dict[str, Any], line: str) -> None:
    assert refused(tmp_path, **fields) == line


def test_endpoints_load_nothing_here(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    assert refused(tmp_path, **ENDPOINT, model_path=model) == (
        "model_path: must be null with endpoints: the model is loaded there"
    )
    assert refused(tmp_path, **ENDPOINT, lora_adapters={"a": adapter(tmp_path)}) == (
        "lora_adapters: must be empty with endpoints: adapters are loaded there"
    )


def test_the_key_of_the_endpoints_is_a_secret(tmp_path: Path) -> None:
    made = load(tmp_path, env={"WEIGHBRIDGE_TIERS__LOCAL_70B__ENDPOINT_API_KEY": "sk-hush"})
    assert made.tiers["local-70b"].endpoint_api_key == SecretStr("sk-hush")
    assert made.tiers["local-8b"].endpoint_api_key is None
    assert effective(made)["tiers"]["local-70b"]["endpoint_api_key"] == "***"
    assert "hush" not in json.dumps(effective(made)) + repr(made)

    held = tmp_path / "key"
    held.write_text("sk-from-file\n")
    made = load(tmp_path, f"tiers:\n  local-8b:\n    endpoint_api_key_file: {held}\n")
    assert made.tiers["local-8b"].endpoint_api_key == SecretStr("sk-from-file")
    assert made.tiers["local-8b"].for_replica(0).endpoint_api_key == SecretStr("sk-from-file")

    assert wrong(tmp_path, "tiers:\n  local-8b: {}\n  local-70b:\n    endpoint_api_key: sk-hush\n") == [
        "s.yaml:4:5: tiers.local-70b.endpoint_api_key: a secret must not stand in this file: use "
        "WEIGHBRIDGE_TIERS__LOCAL_70B__ENDPOINT_API_KEY or tiers.local-70b.endpoint_api_key_file"
    ]
    assert wrong(tmp_path, env={"WEIGHBRIDGE_TIERS__LOCAL_8B__ENDPOINT_API_KEY": "hush hush"}) == [
        "environment: WEIGHBRIDGE_TIERS__LOCAL_8B__ENDPOINT_API_KEY: must hold 1 to 4096 printable ASCII characters "
        "without spaces"
    ]


def test_endpoints_from_the_environment(tmp_path: Path) -> None:
    made = load(
        tmp_path,
        env={
            "WEIGHBRIDGE_TIERS__LOCAL_8B__ENDPOINTS": '["http://10.0.0.5:8000/v1"]',
            "WEIGHBRIDGE_TIERS__LOCAL_8B__ENDPOINT_MODEL": "m",
        },
    )
    assert made.tiers["local-8b"].endpoints == ("http://10.0.0.5:8000/v1",)


# --- adapters


def test_adapters(tmp_path: Path) -> None:
    folder = adapter(tmp_path)
    made = tier(lora_adapters={"acme/support:v1": folder}, max_lora_rank=64, max_loras=2)
    assert made.lora_adapters == {"acme/support:v1": folder}
    env = {
        "WEIGHBRIDGE_TIERS__LOCAL_8B__LORA_ADAPTERS": json.dumps({"a": str(folder)}),
        "WEIGHBRIDGE_TIERS__LOCAL_8B__MAX_LORA_RANK": "8",
    }
    read = load(tmp_path, env=env)
    assert read.tiers["local-8b"].lora_adapters == {"a": folder}
    assert read.tiers["local-8b"].max_lora_rank == 8
    assert effective(read)["tiers"]["local-8b"]["lora_adapters"] == {"a": str(folder)}
    assert (TierSettings().lora_adapters, TierSettings().max_lora_rank, TierSettings().max_loras) == (
        {},
        16,
        4,
    )


def test_an_adapter_needs_its_folder(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert (
        refused(tmp_path, lora_adapters={"a": tmp_path / "none"})
        == "lora_adapters.a: no adapter folder at none"
    )
    assert refused(tmp_path, lora_adapters={"a": tmp_path / "empty"}) == (
        "lora_adapters.a: no adapter_config.json in empty, so it is not an adapter's folder"
    )


@pytest.mark.parametrize("name", ["", "-a", "a b", "a" * 129, "이름"])
def test_an_adapter_is_called_as_a_model_may_be(tmp_path: Path, name: str) -> None:
    assert refused(tmp_path, lora_adapters={name: adapter(tmp_path)}).endswith(LORA_NAME)


@pytest.mark.parametrize("name", ["auto", "local-8b", "local-70b", "commercial"])
def test_an_adapter_is_not_called_like_a_road(tmp_path: Path, name: str) -> None:
    assert refused(tmp_path, lora_adapters={name: adapter(tmp_path)}) == (
        f"lora_adapters.{name}: is a road's name already"
    )


def test_an_adapter_has_one_tier(tmp_path: Path) -> None:
    folder = adapter(tmp_path)
    text = (
        f"tiers:\n  local-8b:\n    lora_adapters: {{v1.2: {folder}}}\n"
        f"  local-70b:\n    lora_adapters:\n      other: {folder}\n      v1.2: {folder}\n"
    )
    assert wrong(tmp_path, text) == [
        "s.yaml:7:7: tiers.local-70b.lora_adapters.v1.2: is an adapter of local-8b already"
    ]


def test_the_rank_is_one_that_vllm_takes(tmp_path: Path) -> None:
    assert [tier(max_lora_rank=rank).max_lora_rank for rank in LORA_RANKS] == list(LORA_RANKS)
    words = "max_lora_rank: must be one of 1, 8, 16, 32, 64, 128, 256, 320, 512"
    for rank in (0, 24, 1024, "x"):
        assert refused(tmp_path, max_lora_rank=rank).startswith(words)
    assert refused(tmp_path, max_loras=0) == "max_loras: must be a whole number between 1 and 1024"


# --- the sections beside it


def test_watching_the_workers(tmp_path: Path) -> None:
    pool = PoolSettings()
    assert (pool.probe_interval_s, pool.probe_timeout_s, pool.probe_failures) == (1, 2, 3)
    assert (pool.progress_timeout_s, pool.continue_wait_s) == (60, 120)
    assert (pool.restart_backoff_s, pool.restart_backoff_max_s) == (1, 60)
    assert (pool.max_restarts, pool.restart_window_s) == (5, 600)
    assert wrong(tmp_path, "pool:\n  restart_backoff_s: 61\n") == [
        "s.yaml:1:1: pool.restart_backoff_max_s: must not be below restart_backoff_s (61)"
    ]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("probe_interval_s", 0.04),
        ("probe_timeout_s", 0),
        ("probe_failures", 0),
        ("progress_timeout_s", 0),
        ("restart_backoff_s", -1),
        ("restart_backoff_max_s", -1),
        ("max_restarts", -1),
        ("restart_window_s", 0),
        ("continue_wait_s", -1),
    ],
)
def test_watching_has_limits(tmp_path: Path, field: str, value: float) -> None:
    lines = wrong(tmp_path, overrides={"pool": {field: value}})
    assert [line.split(": must be ")[0] for line in lines] == [f"command line: pool.{field}"]


def test_comments_keep_a_stream_alive(tmp_path: Path) -> None:
    assert Settings().server.keep_alive_comment_s == 15
    assert wrong(tmp_path, "server:\n  keep_alive_comment_s: 0\n") == [
        "s.yaml:2:3: server.keep_alive_comment_s: must be a number above 0 and not above 3600"
    ]
