"""Settings: which layer wins, where secrets and files come from, and how they are shown."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tests.unit.config.loading import ENV, HASH, load, wrong
from weighbridge.config.problems import ConfigProblems
from weighbridge.config.settings import (
    ApiKey,
    CommercialSettings,
    MaskingSettings,
    Settings,
    TierSettings,
    effective,
    load_settings,
)
from weighbridge.config.shape import leaves
from weighbridge.config.shipped import shipped_file, shipped_tree

# --- layers


def test_shipped_defaults_alone() -> None:
    made = load_settings(env=ENV)
    assert made == Settings(state_dir=Path("/home/x/.local/state/weighbridge"))
    assert (made.server.host, made.server.port) == ("127.0.0.1", 8080)
    assert list(made.tiers) == ["local-8b", "local-70b"]
    assert made.tiers["local-70b"] == TierSettings()
    assert made.commercial.base_url is None


def test_every_field_has_its_default_in_the_shipped_file_and_nowhere_else() -> None:
    tree = shipped_tree()
    tree["tiers"] = {"*": tree["tiers"]["local-8b"]}
    elsewhere = set()
    for leaf in leaves(Settings):
        held: Any = tree
        for step in leaf.path:
            if step == "[]":
                break
            if not isinstance(held, dict) or step not in held:
                elsewhere.add(".".join(leaf.path))
                break
            held = held[step]
    # An endpoint is whole as it stands, or not at all.
    elsewhere = {name for name in elsewhere if not name.startswith("commercial.endpoints.*.")}
    assert elsewhere == {
        "collector.headers",
        "commercial.api_key",
        "masking.secret",
        "redis.password",
        "state_dir",
        "tiers.*.endpoint_api_key",
    }
    assert shipped_file().data["tiers"]["local-70b"] == {}, (
        "the second tier's values must not be written twice"
    )


def test_environment_over_file_over_defaults_and_command_line_over_all(tmp_path: Path) -> None:
    text = "server:\n  port: 1001\n  host: ::1\npool:\n  close_grace_s: 7\n"
    made = load(
        tmp_path,
        text,
        {"WEIGHBRIDGE_SERVER__PORT": "1002", "WEIGHBRIDGE_POOL__CLOSE_GRACE_S": "8"},
        {"pool": {"close_grace_s": 9}},
    )
    assert made.server.port == 1002
    assert made.server.host == "::1"
    assert made.pool.close_grace_s == 9
    assert made.pool.start_timeout_s == 900


def test_a_tier_changes_only_what_is_written(tmp_path: Path) -> None:
    made = load(
        tmp_path, "tiers:\n  local-70b:\n    seed: 7\n", {"WEIGHBRIDGE_TIERS__LOCAL_70B__MAX_NUM_SEQS": "4"}
    )
    assert made.tiers["local-70b"] == TierSettings(seed=7, max_num_seqs=4)
    assert made.tiers["local-8b"] == TierSettings()


@pytest.mark.parametrize(
    ("text", "env"),
    [("tiers:\n  local-70b: null\n", {}), (None, {"WEIGHBRIDGE_TIERS__LOCAL_70B": "null"})],
)
def test_a_tier_can_be_taken_away(tmp_path: Path, text: str | None, env: dict[str, str]) -> None:
    assert list(load(tmp_path, text, env).tiers) == ["local-8b"]


def test_the_cheapest_tier_comes_first_whatever_the_file_says(tmp_path: Path) -> None:
    made = load(tmp_path, "tiers:\n  local-70b: {seed: 1}\n  local-8b: {seed: 2}\n")
    assert list(made.tiers) == ["local-8b", "local-70b"]


def test_config_variable_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("server: {port: 1234}\n")
    assert load_settings(env={**ENV, "WEIGHBRIDGE_CONFIG": str(path)}).server.port == 1234
    assert load_settings(env={**ENV, "WEIGHBRIDGE_CONFIG": ""}).server.port == 8080
    with pytest.raises(ConfigProblems, match=r"none\.yaml: no such file"):
        load_settings(env={**ENV, "WEIGHBRIDGE_CONFIG": str(tmp_path / "none.yaml")})


def test_the_process_environment_is_read_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIGHBRIDGE_SERVER__PORT", "4321")
    assert load_settings().server.port == 4321
    assert Settings().server.port == 8080, "only load_settings reads the environment"


def test_a_section_with_all_lines_commented_out_says_nothing(tmp_path: Path) -> None:
    assert load(tmp_path, "server:\n  # port: 1\npool:\n  close_grace_s: 1\n").server.port == 8080


@pytest.mark.parametrize(
    ("env", "folder"),
    [
        ({"HOME": "/h"}, "/h/.local/state/weighbridge"),
        ({"HOME": "/h", "XDG_STATE_HOME": "/x"}, "/x/weighbridge"),
        ({"HOME": "/h", "XDG_STATE_HOME": "relative"}, "/h/.local/state/weighbridge"),
        ({"HOME": "/h", "WEIGHBRIDGE_STATE_DIR": "/s"}, "/s"),
    ],
)
def test_state_dir(env: dict[str, str], folder: str) -> None:
    assert load_settings(env=env).state_dir == Path(folder)


def test_settings_cannot_be_changed() -> None:
    made = load_settings(env=ENV)
    with pytest.raises(Exception, match="frozen"):
        made.server.port = 1  # type: ignore[misc]


# --- files the settings name


def test_model_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    env = {"WEIGHBRIDGE_TIERS__LOCAL_8B__MODEL_PATH": str(folder)}
    assert wrong(tmp_path, env=env) == [
        "environment: WEIGHBRIDGE_TIERS__LOCAL_8B__MODEL_PATH: no config.json in model, so it is not a model folder"
    ]
    (folder / "config.json").write_text("{}")
    assert load(tmp_path, env=env).tiers["local-8b"].model_path == folder


def test_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    made = load(
        tmp_path, "tiers: {local-8b: {model_path: ~/m}}\nstate_dir: ~/s\npolicies: {file: ~/p.yaml}\n"
    )
    assert made.tiers["local-8b"].model_path == tmp_path / "m"
    assert made.state_dir == tmp_path / "s"
    assert made.policies.file == tmp_path / "p.yaml"


def test_tls_takes_both_files(tmp_path: Path) -> None:
    cert, key = tmp_path / "c.pem", tmp_path / "k.pem"
    cert.write_text("c")
    key.write_text("k")
    assert wrong(tmp_path, f"server:\n  tls_certfile: {cert}\n") == [
        "s.yaml:2:3: server.tls_certfile: needs server.tls_keyfile as well: TLS takes both files or neither"
    ]
    assert wrong(tmp_path, f"server:\n  tls_keyfile: {key}\n") == [
        "s.yaml:2:3: server.tls_keyfile: needs server.tls_certfile as well: TLS takes both files or neither"
    ]
    made = load(tmp_path, f"server:\n  tls_certfile: {cert}\n  tls_keyfile: {key}\n")
    assert (made.server.tls_certfile, made.server.tls_keyfile) == (cert, key)


def test_secrets_come_from_the_environment_or_a_file(tmp_path: Path) -> None:
    held = tmp_path / "key"
    held.write_text("sk-from-file-0123456789\n")
    env = {"WEIGHBRIDGE_COMMERCIAL__API_KEY": "sk-from-env", "WEIGHBRIDGE_MASKING__SECRET_FILE": str(held)}
    made = load(tmp_path, f"commercial:\n  api_key_file: {held}\n")
    assert made.commercial.api_key == SecretStr("sk-from-file-0123456789")
    made = load(tmp_path, None, env)
    assert made.commercial.api_key == SecretStr("sk-from-env")
    assert made.masking.secret == SecretStr("sk-from-file-0123456789")
    assert wrong(tmp_path, f"commercial:\n  api_key_file: {held}\n", env) == [
        "s.yaml:2:3: commercial.api_key_file: stands beside api_key: give one of them"
    ]


def test_a_short_masking_secret_is_refused(tmp_path: Path) -> None:
    assert wrong(tmp_path, env={"WEIGHBRIDGE_MASKING__SECRET": "x" * 15}) == [
        "environment: WEIGHBRIDGE_MASKING__SECRET: must hold 16 characters or more"
    ]
    held = tmp_path / "key"
    held.write_text("short")
    assert wrong(tmp_path, f"masking:\n  secret_file: {held}\n") == [
        "s.yaml:2:3: masking.secret_file: key: must hold 16 characters or more"
    ]


@pytest.mark.parametrize("content", [b"", b"\n", b"two words", b"two\nlines", "키".encode(), b"\xff"])
def test_a_secret_file_without_a_usable_secret_is_refused(tmp_path: Path, content: bytes) -> None:
    held = tmp_path / "key"
    held.write_bytes(content)
    assert wrong(tmp_path, f"commercial:\n  api_key_file: {held}\n") == [
        "s.yaml:2:3: commercial.api_key_file: key: must hold 1 to 4096 printable ASCII characters without spaces"
    ]


def test_a_keyed_gateway_may_listen_everywhere(tmp_path: Path) -> None:
    keys = json.dumps([{"id": "a", "sha256": HASH}])
    made = load(tmp_path, "server: {host: 0.0.0.0}\n", {"WEIGHBRIDGE_AUTH__KEYS": keys})
    assert made.auth.keys == (ApiKey(id="a", sha256=HASH, tenant="default"),)
    assert made.auth.keys[0].digest == hashlib.sha256(b"key").digest()


def test_a_gateway_with_an_admin_key_may_listen_everywhere_as_keys_are_made_with_it(tmp_path: Path) -> None:
    keys = '[{"id": "root", "sha256": "' + "a" * 64 + '"}]'
    made = load(tmp_path, "server: {host: 0.0.0.0}\n", {"WEIGHBRIDGE_AUTH__ADMIN_KEYS": keys})
    assert made.auth.admin_keys[0].role == "admin" and not made.auth.keys


def test_the_base_url_loses_its_last_slash() -> None:
    assert (
        CommercialSettings(base_url="http://127.0.0.1:9/v1/", model="m").base_url == "http://127.0.0.1:9/v1"
    )


ENDPOINT = "commercial:\n  endpoints:\n    second:\n      base_url: http://b.test/v1/\n      model: m\n"


def test_endpoints_stand_by_name_and_main_comes_first(tmp_path: Path) -> None:
    made = load(
        tmp_path, ENDPOINT + "    a-third: {base_url: http://c.test, model: n, max_context_tokens: 9}\n"
    )
    second, third = made.commercial.endpoints.values()
    assert (second.base_url, second.model, second.api_key) == ("http://b.test/v1", "m", None)
    assert (third.base_url, third.max_context_tokens) == ("http://c.test", 9)
    assert list(made.commercial.all_endpoints) == ["second", "a-third"]
    env = {
        "WEIGHBRIDGE_COMMERCIAL__BASE_URL": "http://a.test",
        "WEIGHBRIDGE_COMMERCIAL__MODEL": "k",
        "WEIGHBRIDGE_COMMERCIAL__API_KEY": "sk-main",
        "WEIGHBRIDGE_COMMERCIAL__MAX_CONTEXT_TOKENS": "7",
    }
    ordered = load(tmp_path, ENDPOINT, env).commercial.all_endpoints
    assert list(ordered) == ["main", "second"]
    main = ordered["main"]
    assert (main.base_url, main.model, main.max_context_tokens) == ("http://a.test", "k", 7)
    assert main.api_key == SecretStr("sk-main") and ordered["second"].api_key is None
    assert load(tmp_path).commercial.all_endpoints == {}


def test_the_keys_of_endpoints_come_from_files_or_the_environment_and_are_never_shown(tmp_path: Path) -> None:
    held = tmp_path / "key"
    held.write_text("sk-hush-from-file\n")
    env = {
        "WEIGHBRIDGE_COMMERCIAL__ENDPOINTS": json.dumps(
            {"third": {"base_url": "http://c.test", "model": "n", "api_key": "sk-hush-from-env"}}
        )
    }
    made = load(tmp_path, ENDPOINT + f"      api_key_file: {held}\n", env)
    endpoints = made.commercial.all_endpoints
    assert endpoints["second"].api_key == SecretStr("sk-hush-from-file")
    assert endpoints["third"].api_key == SecretStr("sk-hush-from-env")
    shown = effective(made)["commercial"]["endpoints"]
    assert [shown[name]["api_key"] for name in ("second", "third")] == ["***", "***"]
    for text in (
        json.dumps(effective(made)),
        repr(made),
        str(made),
        repr(endpoints),
        f"{endpoints['third']}",
    ):
        assert "hush" not in text


# --- showing them


def test_effective_hides_secrets_and_is_plain_data(tmp_path: Path) -> None:
    env = {
        "WEIGHBRIDGE_COMMERCIAL__API_KEY": "sk-hush",
        "WEIGHBRIDGE_MASKING__SECRET": "hush-hush-hush-hush",
        "WEIGHBRIDGE_AUTH__KEYS": json.dumps([{"id": "a", "sha256": HASH}]),
    }
    made = load(tmp_path, env=env)
    shown = effective(made)
    assert shown["commercial"]["api_key"] == shown["masking"]["secret"] == "***"
    assert shown["auth"]["keys"] == [{"id": "a", "sha256": "***", "tenant": "default"}]
    assert shown["state_dir"] == "/home/x/.local/state/weighbridge"
    assert set(shown) == set(Settings.model_fields)
    for text in (json.dumps(shown), repr(made), str(made)):
        assert "hush" not in text
    assert effective(load(tmp_path))["masking"]["secret"] is None


def test_no_traceback_of_pydantic_holds_a_secret() -> None:
    with pytest.raises(ValueError, match="16 characters") as caught:
        MaskingSettings(secret=SecretStr("hush"))
    assert "hush" not in str(caught.value)
