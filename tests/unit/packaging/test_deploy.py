"""Every path, flag, variable and figure in `deploy/` means something to this version of the product."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml

from weighbridge.config.envsource import CONFIG_VARIABLE, read_env
from weighbridge.config.settings import Settings, load_settings
from weighbridge.gateway.api import make_api
from weighbridge.gateway.cli import main
from weighbridge.gateway.lifespan import TRACES_S

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
PROFILES = ("a100-80g", "shared-gpu")
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
CONTAINERFILE = (DEPLOY / "Containerfile").read_text()
ENV_EXAMPLE = (DEPLOY / "weighbridge.env.example").read_text()
EVERY_FILE = [
    path for path in sorted(DEPLOY.iterdir()) if path.suffix != ".env"
]  # a filled-in copy is git-ignored


def instructions(name: str) -> list[str]:
    """What follows each `name` in the Containerfile, continued lines joined."""
    joined = CONTAINERFILE.replace("\\\n", " ")
    return [" ".join(line.split()[1:]) for line in joined.splitlines() if line.startswith(name + " ")]


def unit() -> dict[str, list[str]]:
    """The [Service] section of the systemd unit; a key may stand there several times."""
    found: dict[str, list[str]] = {}

    class Keep(dict[str, Any]):
        def __setitem__(self, key: str, value: Any) -> None:
            if isinstance(value, list):
                found.setdefault(key, []).extend(value)
            super().__setitem__(key, value)

    parser = configparser.RawConfigParser(dict_type=Keep, strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((DEPLOY / "weighbridge.service").read_text())
    assert {"Unit", "Service", "Install"} == set(parser.sections())
    return found


def commands() -> list[tuple[str, list[str]]]:
    """Every command line of ours in `deploy/`, with where it stands."""
    found = [("Containerfile", json.loads(line)) for line in instructions("CMD")]
    found += [(f"compose.yaml: {name}", service["command"]) for name, service in COMPOSE["services"].items()]
    found += [
        ("weighbridge.service", line.split()[1:])
        for key in ("ExecStart", "ExecStartPre")
        for line in unit().get(key, [])
    ]
    return found


@pytest.mark.parametrize(("where", "command"), commands())
def test_the_command_line_takes_every_flag(
    where: str, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    subcommand, *rest = command
    with pytest.raises(SystemExit) as ended:
        main([subcommand, "--help"])
    assert ended.value.code == 0, where
    known = set(re.findall(r"--[a-z0-9-]+", capsys.readouterr().out))
    assert {word for word in rest if word.startswith("--")} <= known, where


def test_there_are_commands_to_check() -> None:
    assert len(commands()) == 4


@pytest.mark.parametrize("file", EVERY_FILE, ids=lambda path: path.name)
def test_every_variable_names_a_setting(file: Path) -> None:
    for name in set(re.findall(r"WEIGHBRIDGE_[A-Z0-9_]+", file.read_text())) - {CONFIG_VARIABLE}:
        problems = [problem.message for problem in read_env(Settings, {name: "{}"}).problems]
        assert not any("no setting has this name" in message for message in problems), f"{file.name}: {name}"


def test_the_example_environment_is_accepted_with_everything_switched_on(tmp_path: Path) -> None:
    env = dict(re.findall(r"^#?(WEIGHBRIDGE_[A-Z0-9_]+)=(.+)$", ENV_EXAMPLE, re.MULTILINE))
    assert len(env) == 6
    for name, value in env.items():
        if value.startswith("/run/secrets/"):
            secret = tmp_path / Path(value).name
            secret.write_text("0123456789abcdef\n")
            env[name] = str(secret)
    settings = load_settings(None, env)
    assert [key.id for key in settings.auth.keys] == ["first"]
    assert [key.id for key in settings.auth.admin_keys] == ["operator"]
    assert settings.commercial.base_url == "https://api.example.com/v1"


def test_every_path_in_the_repository_exists() -> None:
    sources = [word for line in instructions("COPY") for word in line.split()[:-1]]
    texts = {path.name: path.read_text() for path in EVERY_FILE}
    texts["docs"] = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))
    named = [
        (name, path)
        for name, text in texts.items()
        for path in re.findall(r"\b(?:deploy|docs)/[\w./-]+\w", text)
    ]
    assert len(sources) > 10 and len(named) > 5
    missing = [source for source in sources if not (ROOT / source).exists()]
    missing += [
        f"{name}: {path}"
        for name, path in named
        # The filled-in environment file is the reader's own.
        if not (ROOT / path).exists() and path != "deploy/weighbridge.env"
    ]
    assert missing == []


def test_the_container_holds_every_room() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    rooms = {package.split(".")[1] for package in project["tool"]["setuptools"]["packages"]}
    copied = {line.split()[0].rstrip("/") for line in instructions("COPY") if line.count(" ") == 1}
    assert rooms == copied
    kept = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line[:1] == "!"
    }
    assert rooms <= kept, "the build context must hold what is copied"


def test_the_container_is_pinned_runs_without_root_and_keeps_its_ledger() -> None:
    (base,) = instructions("FROM")
    assert re.fullmatch(r"\S+:v\d+\.\d+\.\d+", base)
    assert instructions("USER") == ["weighbridge"]
    env = dict(pair.split("=", 1) for line in instructions("ENV") for pair in line.split())
    assert env["WEIGHBRIDGE_STATE_DIR"] in json.loads(instructions("VOLUME")[0])
    ours = {name: value for name, value in env.items() if name.startswith("WEIGHBRIDGE_")}
    key = {"WEIGHBRIDGE_AUTH__KEYS": json.dumps([{"id": "a", "sha256": "0" * 64}])}
    assert load_settings(None, ours | key).server.host == "0.0.0.0"


@pytest.mark.parametrize("profile", PROFILES)
def test_a_compose_profile_is_whole(profile: str) -> None:
    service = COMPOSE["services"][profile]
    assert service["profiles"] == [profile]
    assert (DEPLOY / service["build"]["dockerfile"].removeprefix("deploy/")).is_file()
    assert (DEPLOY / service["build"]["context"]).resolve() == ROOT
    assert service["env_file"] + ".example" in {path.name for path in EVERY_FILE}
    (config,) = (word for word in service["command"] if word.endswith(".yaml"))
    assert (DEPLOY / Path(config).name).is_file()
    copied = next(line for line in instructions("COPY") if line.endswith(" /etc/weighbridge/"))
    assert Path(config).name in copied and Path(config).parent == Path("/etc/weighbridge")
    mounts = [volume.rsplit(":", 1)[0 if volume.endswith(":ro") else 1] for volume in service["volumes"]]
    assert {"/var/lib/weighbridge", "/var/cache/weighbridge"} <= set(mounts)
    assert any(mount.endswith(":/models") for mount in mounts)
    assert set(COMPOSE["volumes"]) == {v.split(":")[0] for v in service["volumes"] if not v.startswith("$")}


def test_the_health_check_asks_an_address_the_gateway_has() -> None:
    (service,) = {json.dumps(COMPOSE["services"][profile]["healthcheck"]["test"]) for profile in PROFILES}
    (path,) = re.findall(r"http://127\.0\.0\.1:8080(/[a-z/]+)", service)
    assert path in make_api(MagicMock(), MagicMock()).openapi()["paths"]


def stop_time(settings: Settings) -> float:
    backstop = 5  # what the server adds to the drain for writing records
    redis, shipper, ledger = 3, 6, 30
    serving = settings.server.drain_timeout_s + backstop
    return serving + settings.pool.close_grace_s + redis + shipper + ledger + TRACES_S


def test_stopping_is_given_enough_time() -> None:
    needed = stop_time(load_settings(None, {}))
    assert float(unit()["TimeoutStopSec"][0]) > needed
    for profile in PROFILES:
        assert float(COMPOSE["services"][profile]["stop_grace_period"].removesuffix("s")) > needed


def test_the_unit_stops_the_gateway_before_its_engines_and_does_not_retry_wrong_settings() -> None:
    service = unit()
    assert service["KillMode"] == ["mixed"]
    assert service["RestartPreventExitStatus"] == [str(wrong_settings_status())]
    env = dict(pair.split("=", 1) for pair in service["Environment"])
    assert env["WEIGHBRIDGE_STATE_DIR"] == f"/var/lib/{service['StateDirectory'][0]}"
    assert env["XDG_CACHE_HOME"] == f"/var/cache/{service['CacheDirectory'][0]}"
    # These would hide the GPU or forbid compiling kernels at run time.
    assert not {"PrivateDevices", "ProtectClock", "MemoryDenyWriteExecute"} & service.keys()


def wrong_settings_status() -> int:
    return main(["serve", "--config", "/no/such/settings.yaml"])


def profile_settings(profile: str, models: Path) -> Settings:
    """The profile's settings, with made-up model folders in place of `/models`."""
    text = (DEPLOY / f"settings-{profile}.yaml").read_text()
    for folder in re.findall(r"model_path: /models/(\S+)", text):
        (models / folder).mkdir(exist_ok=True)
        (models / folder / "config.json").write_text("{}")
    file = models / "settings.yaml"
    file.write_text(text.replace("/models/", f"{models}/"))
    return load_settings(file, {})


@dataclass(frozen=True)
class Model:
    """A decoder with grouped-query attention and a KV cache of 16 bits a number."""

    layers: int
    hidden: int
    feed_forward: int
    kv_heads: int
    head_size: int
    vocabulary: int
    linear: float
    """Bytes that one weight of a linear layer takes."""

    @property
    def weight_bytes(self) -> float:
        kv = self.kv_heads * self.head_size
        layer = 2 * self.hidden**2 + 2 * self.hidden * kv + 3 * self.hidden * self.feed_forward
        norms = (2 * self.layers + 1) * self.hidden
        return self.layers * layer * self.linear + 2 * (2 * self.vocabulary * self.hidden + norms)

    @property
    def kv_bytes_a_token(self) -> int:
        return 2 * 2 * self.layers * self.kv_heads * self.head_size

    def blocks(self, share: float, block_size: int) -> int:
        free = A100_BYTES * share - self.weight_bytes - WORKSPACE_BYTES
        return int(free // (self.kv_bytes_a_token * block_size))


GIB = 2**30
A100_BYTES = 79.25 * GIB
WORKSPACE_BYTES = 2 * GIB  # assumed
USUAL_TOKENS = 768  # 512 in, 256 out
MODELS = {
    "local-8b": Model(32, 4096, 14336, 8, 128, 128256, linear=2),
    "local-70b": Model(
        80, 8192, 28672, 8, 128, 128256, linear=0.5 + 2.5 / 128
    ),  # AWQ: 4 bits, and a scale per 128
}


def test_the_planner_gives_the_published_figures() -> None:
    assert MODELS["local-8b"].blocks(0.90, 16) == 27_836
    assert MODELS["local-70b"].blocks(0.90, 16) == 6_612


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_fits_its_card(profile: str, tmp_path: Path) -> None:
    settings = profile_settings(profile, tmp_path)
    for road, tier in settings.tiers.items():
        tokens = MODELS[road].blocks(tier.gpu_memory_utilization, tier.block_size) * tier.block_size
        assert tokens >= tier.max_model_len, f"{road}: not one full window fits"
        assert tokens >= tier.max_num_seqs * USUAL_TOKENS, (
            f"{road}: {tier.max_num_seqs} usual requests do not fit"
        )
        text = (DEPLOY / f"settings-{profile}.yaml").read_text()
        (line,) = (line for line in text.splitlines() if line.startswith(f"#   {road} "))
        assert f" {round(tokens / 1000)}k tokens " in line


def test_the_whole_card_is_used_as_the_seeds_say(tmp_path: Path) -> None:
    tier = profile_settings("a100-80g", tmp_path).tiers["local-70b"]
    assert (tier.gpu_memory_utilization, tier.max_model_len, tier.block_size, tier.max_num_seqs) == (
        0.90,
        4096,
        16,
        128,
    )
    tokens = MODELS["local-70b"].blocks(0.90, 16) * 16
    assert 128 * USUAL_TOKENS <= tokens < 256 * USUAL_TOKENS


def test_each_tier_has_a_card_of_its_own(tmp_path: Path) -> None:
    tiers = profile_settings("a100-80g", tmp_path).tiers
    assert set(tiers) == {"local-8b", "local-70b"}
    assert {tier.devices for tier in tiers.values()} == {"0", "1"}
    reserved = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]["a100-80g"]["deploy"]
    assert reserved["resources"]["reservations"]["devices"][0]["count"] == 2


def test_two_engines_on_one_card_add_up(tmp_path: Path) -> None:
    tiers = profile_settings("shared-gpu", tmp_path).tiers
    assert set(tiers) == {"local-8b", "local-70b"}
    assert 0.80 <= sum(tier.gpu_memory_utilization for tier in tiers.values()) <= 0.85


def collector(text: str) -> dict[str, Any]:
    made: dict[str, Any] = yaml.safe_load(text)
    return made


@pytest.mark.parametrize("with_backend", [False, True])
def test_the_collectors_pipelines_are_made_of_parts_that_are_there(with_backend: bool) -> None:
    text = (DEPLOY / "otel-collector.yaml").read_text()
    if with_backend:
        head, backend = text.split("  # otlphttp/backend:\n")
        backend, tail = backend.split("\nservice:", 1)
        whole = f"  otlphttp/backend:\n{re.sub(r'^  # ', '  ', backend, flags=re.MULTILINE)}"
        tail = re.sub(r"\]( +# )(, otlphttp/backend)", r"\2]", tail)
        text = f"{head}{whole}\nservice:{tail}"
    made = collector(text)
    used: dict[str, set[str]] = {"receivers": set(), "processors": set(), "exporters": set()}
    # What the gateway posts, /v1/logs, /v1/metrics and /v1/traces, has a pipeline each: the collector knows no others.
    assert made["service"]["pipelines"].keys() == {"logs", "metrics", "traces"}
    for pipeline in made["service"]["pipelines"].values():
        assert pipeline["receivers"] == ["otlp"]
        assert ("otlphttp/backend" in pipeline["exporters"]) is with_backend
        assert pipeline["processors"][0] == "memory_limiter"
        for kind, names in pipeline.items():
            used[kind] |= set(names)
    for kind, names in used.items():
        assert names == made[kind].keys(), kind
    assert set(made["service"]["extensions"]) == made["extensions"].keys()
    # A processor that answers before it has passed on would lose what was acknowledged.
    assert made["service"]["pipelines"]["logs"]["processors"] == ["memory_limiter"]
    assert made["exporters"]["file/audit"]["format"] == "json"
    if with_backend:
        backend_settings = made["exporters"]["otlphttp/backend"]
        assert backend_settings["sending_queue"]["storage"] in made["extensions"]
        assert backend_settings["sending_queue"]["block_on_overflow"] is True
        assert backend_settings["retry_on_failure"]["max_elapsed_time"] == 0


def test_the_collector_listens_where_the_page_says() -> None:
    made = collector((DEPLOY / "otel-collector.yaml").read_text())
    page = (ROOT / "docs" / "shipping.md").read_text()
    assert f"http://{made['receivers']['otlp']['protocols']['http']['endpoint']} " in page
    assert str(Path(made["exporters"]["file/audit"]["path"]).parent) in page
