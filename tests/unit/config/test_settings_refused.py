"""Settings that are wrong: each stops the start with one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.config.loading import HASH, wrong
from weighbridge.config.errors import ConfigError
from weighbridge.config.settings import PoolSettings, load_settings

IN_FILE = {
    "unknown section": ("sever: {}\n", "s.yaml:1:1: sever: unknown key; did you mean server?"),
    "unknown key": ("server:\n  prot: 1\n", "s.yaml:2:3: server.prot: unknown key; did you mean port?"),
    "unknown key, nothing near": (
        "pool:\n  zzz: 1\n",
        "s.yaml:2:3: pool.zzz: unknown key; known here: " + ", ".join(PoolSettings.model_fields),
    ),
    "unknown tier": (
        "tiers:\n  local-9b: {}\n",
        "s.yaml:2:3: tiers.local-9b: unknown name: must be one of local-8b, local-70b",
    ),
    "section is a number": ("server: 5\n", "s.yaml:1:1: server: must be a mapping"),
    "bool for a number": (
        "server:\n  port: true\n",
        "s.yaml:2:3: server.port: must be a whole number between 0 and 65535",
    ),
    "half a port": (
        "server:\n  port: 80.5\n",
        "s.yaml:2:3: server.port: must be a whole number between 0 and 65535",
    ),
    "port too large": (
        "server:\n  port: 65536\n",
        "s.yaml:2:3: server.port: must be a whole number between 0 and 65535",
    ),
    "nan": (
        "pool:\n  close_grace_s: .nan\n",
        "s.yaml:2:3: pool.close_grace_s: must be a number between 0 and 600",
    ),
    "infinite": (
        "server:\n  request_timeout_s: .inf\n",
        "s.yaml:2:3: server.request_timeout_s: must be a number above 0 and not above 86400",
    ),
    "number for text": (
        "commercial:\n  model: 4\n",
        "s.yaml:2:3: commercial.model: must be text of at most 256 printable ASCII characters without spaces: "
        "put it in quotes",
    ),
    "text for a bool": (
        "tiers:\n  local-8b:\n    enforce_eager: perhaps\n",
        "s.yaml:3:5: tiers.local-8b.enforce_eager: must be true or false",
    ),
    "block size 8": (
        "tiers:\n  local-8b:\n    block_size: 8\n",
        "s.yaml:3:5: tiers.local-8b.block_size: must be a multiple of 16 from 16 to 256 (16, 32, 48, 64 ...; the CPU "
        "backend of vLLM needs a multiple of 32)",
    ),
    "block size 40": (
        "tiers:\n  local-70b:\n    block_size: 40\n",
        "s.yaml:3:5: tiers.local-70b.block_size: must be a multiple of 16 from 16 to 256 (16, 32, 48, 64 ...; the CPU "
        "backend of vLLM needs a multiple of 32)",
    ),
    "memory share": (
        "tiers:\n  local-8b:\n    gpu_memory_utilization: 0\n",
        "s.yaml:3:5: tiers.local-8b.gpu_memory_utilization: must be a number above 0 and not above 1",
    ),
    "tensor parallel": (
        "tiers:\n  local-8b:\n    tensor_parallel_size: 0\n",
        "s.yaml:3:5: tiers.local-8b.tensor_parallel_size: must be a whole number between 1 and 64",
    ),
    "batched tokens": (
        "tiers:\n  local-8b:\n    max_num_seqs: 4096\n",
        "s.yaml:2:3: tiers.local-8b.max_num_batched_tokens: must not be below max_num_seqs (4096)",
    ),
    "slots": (
        "tiers:\n  local-8b:\n    slots: 13\n",
        "s.yaml:3:5: tiers.local-8b.slots: must not be above 12, one and a half times max_num_seqs",
    ),
    "too many devices": (
        "tiers:\n  local-8b:\n    devices: '0,1'\n",
        "s.yaml:3:5: tiers.local-8b.devices: must name 1 (tensor_parallel_size)",
    ),
    "device twice": (
        "tiers:\n  local-8b:\n    tensor_parallel_size: 2\n    devices: '1,1'\n",
        "s.yaml:4:5: tiers.local-8b.devices: names a GPU twice",
    ),
    "cores": (
        "tiers:\n  local-8b:\n    omp_cpus: all\n",
        "s.yaml:3:5: tiers.local-8b.omp_cpus: must be text: cores such as 0-3 or 0,2 (a | between the parts of a split "
        "model, a ; between replicas), auto or nobind",
    ),
    "model folder": (
        "tiers:\n  local-8b:\n    model_path: /no/such/model\n",
        "s.yaml:3:5: tiers.local-8b.model_path: no model folder at /no/such/model",
    ),
    "all tiers away": (
        "tiers:\n  local-8b: null\n  local-70b: null\n",
        "s.yaml:1:1: tiers: at least one local tier is needed",
    ),
    "open to the net": (
        "server:\n  host: 0.0.0.0\n",
        "s.yaml:2:3: server.host: 0.0.0.0 can be reached from other machines, but auth.keys holds no API key: add one, "
        "or an admin key to make some with (auth.admin_keys), or listen on 127.0.0.1",
    ),
    "no commercial model": (
        "commercial:\n  base_url: https://api.example.com/v1\n",
        "s.yaml:1:1: commercial.model: is needed with commercial.base_url: the model name sent to that API",
    ),
    "an endpoint called main": (
        "commercial:\n  endpoints:\n    main: {base_url: http://b.test, model: m}\n",
        "s.yaml:3:5: commercial.endpoints.main: this name belongs to the endpoint of commercial.base_url: choose "
        "another",
    ),
    "an endpoint without a model": (
        "commercial:\n  endpoints:\n    b: {base_url: http://b.test}\n",
        "s.yaml:3:5: commercial.endpoints.b.model: is missing: must be text of 1 to 256 printable ASCII characters "
        "without spaces",
    ),
    "an endpoint with an empty model": (
        "commercial:\n  endpoints:\n    b: {base_url: http://b.test, model: ''}\n",
        "s.yaml:3:34: commercial.endpoints.b.model: must be text of 1 to 256 printable ASCII characters without spaces",
    ),
    "an endpoint without a URL": (
        "commercial:\n  endpoints:\n    b: {model: m}\n",
        "s.yaml:3:5: commercial.endpoints.b.base_url: is missing: must be an http(s) URL",
    ),
    "an endpoint of nothing": (
        "commercial:\n  endpoints:\n    b: null\n",
        "s.yaml:3:5: commercial.endpoints.b: must be a mapping",
    ),
    "a name for an endpoint": (
        "commercial:\n  endpoints:\n    a b: {base_url: http://b.test, model: m}\n",
        "s.yaml:3:5: commercial.endpoints.a b: this name must be text of 1 to 64 letters, digits and . _ @ -, "
        "beginning with a letter or digit",
    ),
    "a password in an endpoint's URL": (
        "commercial:\n  endpoints:\n    b: {base_url: 'http://user:hush@b.test', model: m}\n",
        "s.yaml:3:9: commercial.endpoints.b.base_url: must hold no user name or password: use api_key_file",
    ),
    "an endpoint's secret in the file": (
        "commercial:\n  endpoints:\n    b: {base_url: http://b.test, model: m, api_key: sk-hush-hush}\n",
        "s.yaml:3:44: commercial.endpoints.b.api_key: a secret must not stand in this file: use "
        "WEIGHBRIDGE_COMMERCIAL__ENDPOINTS or commercial.endpoints.b.api_key_file",
    ),
    "no key file of an endpoint": (
        "commercial:\n  endpoints:\n    b: {base_url: http://b.test, model: m, api_key_file: /no/such/file}\n",
        "s.yaml:3:44: commercial.endpoints.b.api_key_file: /no/such/file: no such file",
    ),
    "a limit that has moved into the policy": (
        "commercial:\n  idle_timeout_s: 3\n",
        "s.yaml:2:3: commercial.idle_timeout_s: unknown key; known here: base_url, model, api_key, api_key_file, "
        "max_context_tokens, endpoints, breaker_failures, breaker_rest_s, kill_switch_file",
    ),
    "a breaker that is always open": (
        "commercial:\n  breaker_failures: 0\n",
        "s.yaml:2:3: commercial.breaker_failures: must be a whole number between 1 and 1000",
    ),
    "secret in the file": (
        "commercial:\n  api_key: sk-hush-hush\n",
        "s.yaml:2:3: commercial.api_key: a secret must not stand in this file: use WEIGHBRIDGE_COMMERCIAL__API_KEY or "
        "commercial.api_key_file",
    ),
    "masking secret in the file": (
        "masking:\n  secret: sk-hush-hush-hush\n",
        "s.yaml:2:3: masking.secret: a secret must not stand in this file: use WEIGHBRIDGE_MASKING__SECRET or "
        "masking.secret_file",
    ),
    "a layer that is none": (
        "masking:\n  layers: [ko-rules, ko-name]\n",
        "s.yaml:2:22: masking.layers[1]: must be one of ko-rules, ko-pii, maskingtape, kiwi, en-rules, spacy-en, "
        "local-model",
    ),
    "a layer twice": (
        "masking:\n  layers: [kiwi, ko-pii, kiwi]\n",
        "s.yaml:2:26: masking.layers[2]: this layer is given twice",
    ),
    "a model of your own that is nowhere": (
        "masking:\n  layers: [local-model]\n",
        "s.yaml:1:1: masking.local_model: must name a folder, as layers names local-model",
    ),
    "no secret file": (
        "commercial:\n  api_key_file: /no/such/file\n",
        "s.yaml:2:3: commercial.api_key_file: /no/such/file: no such file",
    ),
    "half of TLS, no file": (
        "server:\n  tls_keyfile: /no/key.pem\n",
        "s.yaml:2:3: server.tls_keyfile: no file at /no/key.pem",
    ),
    "policy name": (
        "policies:\n  name: my-own\n",
        "s.yaml:2:3: policies.name: must be one of default, on-prem-only",
    ),
    "key hash": (
        f"auth:\n  keys:\n    - id: a\n      sha256: {HASH[:-1]}\n",
        "s.yaml:4:7: auth.keys[0].sha256: must be the SHA-256 of the key as 64 hexadecimal digits",
    ),
    "key without hash": (
        "auth:\n  keys:\n    - id: a\n",
        "s.yaml:3:7: auth.keys[0].sha256: is missing: must be the SHA-256 of the key as 64 hexadecimal digits",
    ),
    "same id twice": (
        f"auth:\n  keys:\n    - {{id: a, sha256: {HASH}}}\n    - {{id: a, sha256: {'f' * 64}}}\n",
        "s.yaml:4:8: auth.keys[1].id: this id is given twice",
    ),
    "same key twice": (
        f"auth:\n  keys:\n    - {{id: a, sha256: {HASH}}}\n    - {{id: b, sha256: {HASH.upper()}}}\n",
        "s.yaml:4:15: auth.keys[1].sha256: this key is given twice",
    ),
    "admin key is an API key": (
        f"auth:\n  keys:\n    - {{id: a, sha256: {HASH}}}\n  admin_keys:\n    - {{id: b, sha256: {HASH}}}\n",
        "s.yaml:5:15: auth.admin_keys[0].sha256: an admin key must not be an API key as well",
    ),
}


@pytest.mark.parametrize(("text", "line"), IN_FILE.values(), ids=IN_FILE)
def test_refused_in_the_file(tmp_path: Path, text: str, line: str) -> None:
    assert wrong(tmp_path, text) == [line]


def test_quantization_names_all_legal_values(tmp_path: Path) -> None:
    (line,) = wrong(tmp_path, "tiers:\n  local-8b:\n    quantization: awk\n")
    assert line.startswith("s.yaml:3:5: tiers.local-8b.quantization: must be one of awq, ")
    assert all(
        name in line for name in ("gptq_marlin", "fp8_per_block", "compressed-tensors", "nvfp4_per_token")
    )


def test_several_problems_are_several_lines_in_order(tmp_path: Path) -> None:
    lines = wrong(
        tmp_path,
        "pool:\n  close_grace_s: x\nserver:\n  port: -1\n  nope: 1\n",
        {"WEIGHBRIDGE_SERVER__HOST": "a b", "WEIGHBRIDGE_SEVER__PORT": "1"},
        {"masking": {"workers": 0}},
    )
    assert sorted(line.split(": ")[:2] for line in lines) == [
        ["command line", "masking.workers"],
        ["environment", "WEIGHBRIDGE_SERVER__HOST"],
        ["environment", "WEIGHBRIDGE_SEVER__PORT"],
        ["s.yaml:2:3", "pool.close_grace_s"],
        ["s.yaml:4:3", "server.port"],
        ["s.yaml:5:3", "server.nope"],
    ]


def test_a_wrong_value_in_the_environment_names_the_variable_and_not_the_value(tmp_path: Path) -> None:
    lines = wrong(
        tmp_path,
        "server: {port: 80}\n",
        {"WEIGHBRIDGE_SERVER__PORT": "hush", "WEIGHBRIDGE_COMMERCIAL__API_KEY": "hush hush"},
    )
    assert lines == [
        "environment: WEIGHBRIDGE_COMMERCIAL__API_KEY: must hold 1 to 4096 printable ASCII characters without spaces",
        "environment: WEIGHBRIDGE_SERVER__PORT: must be a whole number between 0 and 65535",
    ]


def test_no_problem_repeats_a_value(tmp_path: Path) -> None:
    lines = wrong(
        tmp_path,
        "commercial:\n  api_key: hushhush\n  base_url: http://user:hushhush@h/\nmasking:\n  secret: [hushhush]\n"
        "auth:\n  keys:\n    - {id: hushhush!, sha256: hushhush, tenant: [hushhush]}\n",
    )
    assert len(lines) == 7
    assert "hushhush" not in "\n".join(lines)


def test_the_command_line_is_named(tmp_path: Path) -> None:
    assert wrong(tmp_path, overrides={"tiers": {"local-8b": {"model_path": "/no/model"}}}) == [
        "command line: tiers.local-8b.model_path: no model folder at /no/model"
    ]


def test_a_wrong_shipped_value_under_a_right_one_blames_what_the_user_wrote(tmp_path: Path) -> None:
    assert wrong(tmp_path, env={"WEIGHBRIDGE_COMMERCIAL__BASE_URL": "http://127.0.0.1:9/v1"}) == [
        "environment: commercial.model: is needed with commercial.base_url: the model name sent to that API"
    ]


def test_a_caller_who_does_not_read_must_not_look_like_a_dead_engine() -> None:
    with pytest.raises(ConfigError, match=r"pool\.progress_timeout_s: .*above server\.slow_reader_timeout_s"):
        load_settings(
            None,
            env={},
            overrides={"server": {"slow_reader_timeout_s": 60}, "pool": {"progress_timeout_s": 60}},
        )
