"""The `weighbridge` command: exit statuses, one-line complaints, and what it does not import."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from weighbridge.config.settings import load_settings, with_place
from weighbridge.gateway import cli
from weighbridge.policies.loader import example_paths
from weighbridge.router.difficulty import COMPILED


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("WEIGHBRIDGE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def model_folder(path: Path) -> Path:
    path.mkdir()
    (path / "config.json").write_text("{}")
    return path


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert out.startswith("weighbridge 0.")
    assert out.endswith(" compiled)\n" if COMPILED else " in plain Python)\n")


@pytest.mark.parametrize("argv", [["--version"], ["check"], ["key", "new"]])
def test_the_quick_commands_import_nothing_heavy(argv: list[str]) -> None:
    program = (
        "import sys\n"
        "from weighbridge.gateway.cli import main\n"
        "try:\n"
        f"    main({argv!r})\n"
        "except SystemExit:\n"
        "    pass\n"
        "heavy = {'torch', 'vllm', 'transformers', 'presidio_analyzer', 'spacy', 'fastapi', 'uvicorn', 'aiohttp'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heavy: []"


def test_check_prints_the_settings_in_force_without_secrets(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    digest = hashlib.sha256(b"wb-planted").hexdigest()
    config = tmp_path / "weighbridge.yaml"
    config.write_text(
        f"server:\n  port: 9001\nauth:\n  keys:\n    - id: one\n      sha256: {digest}\n"
        "commercial:\n  base_url: http://127.0.0.1:1/v1\n  model: big\n"
        "  endpoints:\n    second: {base_url: http://127.0.0.1:2/v1, model: b, api_key_file: "
        f"{tmp_path / 'key'}}}\n"
    )
    (tmp_path / "key").write_text("sk-planted-file")
    monkeypatch.setenv("WEIGHBRIDGE_COMMERCIAL__API_KEY", "sk-planted-secret")
    third = {"base_url": "http://127.0.0.1:3/v1", "model": "c", "api_key": "sk-planted-third"}
    monkeypatch.setenv("WEIGHBRIDGE_COMMERCIAL__ENDPOINTS", json.dumps({"third": third}))
    assert cli.main(["check", "--config", str(config)]) == 0
    out = capsys.readouterr().out
    printed = yaml.safe_load(out)
    assert printed["server"]["port"] == 9001
    assert printed["auth"]["keys"][0]["id"] == "one"
    assert digest not in out
    assert "planted" not in out
    shown = printed["commercial"]["endpoints"]
    assert {name: one["api_key"] for name, one in shown.items()} == {"second": "***", "third": "***"}
    assert "# policy in force: default@" in out


def test_check_names_file_line_and_field_of_every_problem(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "weighbridge.yaml"
    config.write_text("server:\n  prot: 9001\n  port: none\n")
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\nname: mine\negress: maybe\n")
    assert cli.main(["check", "--config", str(config), "--policy", str(policy)]) == 2
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert lines[0].startswith(f"{config}:2:3: server.prot: ")
    assert lines[1].startswith(f"{config}:3:3: server.port: ")
    assert lines[2].startswith(f"{policy}:3:1: egress: ")
    assert captured.out == ""


def test_check_as_json_for_a_machine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "weighbridge.yaml"
    config.write_text("server:\n  port: 9001\n")
    policy = tmp_path / "policy.yaml"
    policy.write_text("version: 1\nname: mine\negress: never\nbounds: {local_8b: x}\nbounds: {}\n이름: 1\n")
    command = ["check", "--json", "--config", str(config), "--policy", str(policy)]
    assert cli.main(command) == 2
    told = json.loads(capsys.readouterr().out)
    assert told == {
        "ok": False,
        "policy": None,
        "problems": [
            {
                "file": str(policy),
                "line": 4,
                "column": 10,
                "field": "bounds.local_8b",
                "message": "must be a number between 0 and 1, not text",
            },
            {
                "file": str(policy),
                "line": 5,
                "column": 1,
                "field": "bounds",
                "message": "duplicate key, first given on line 4",
            },
            {
                "file": str(policy),
                "line": 6,
                "column": 1,
                "field": "이름",
                "message": told["problems"][2]["message"],
            },
        ],
        "warnings": [],
    }
    policy.write_text("version: 1\nname: mine\negress: never\n")
    assert cli.main(command) == 0
    captured = capsys.readouterr()
    told = json.loads(captured.out)
    assert told["ok"] is True and told["policy"].startswith("mine@") and told["problems"] == []
    assert captured.err == ""
    # What is wrong with the settings is told in the same way, with a place or without one.
    config.write_text("server:\n  prot: 1\n")
    assert cli.main(command) == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert (problem["file"], problem["line"], problem["column"]) == (str(config), 2, 3)


def test_check_holds_a_policy_against_the_most_egress_of_the_settings(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "weighbridge.yaml"
    config.write_text("policies:\n  max_egress: never\n")
    assert cli.main(["check", "--config", str(config)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(": egress: must be never: policies.max_egress of the settings is never")
    config.write_text("policies:\n  max_egress: never\n  name: on-prem-only\n")
    assert cli.main(["check", "--config", str(config)]) == 0


@pytest.mark.parametrize("path", example_paths(), ids=lambda path: path.stem)
def test_check_takes_every_example(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    assert cli.main(["check", "--policy", str(path)]) == 0
    assert f"# policy in force: {path.stem}@" in capsys.readouterr().out


def test_check_looks_at_the_policy_the_settings_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "weighbridge.yaml"
    config.write_text(f"policies:\n  file: {tmp_path}/none.yaml\n")
    assert cli.main(["check", "--config", str(config)]) == 2
    assert capsys.readouterr().err == f"{tmp_path}/none.yaml: no such file\n"


def test_check_reads_the_lists_of_known_values(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    good, bad, config = tmp_path / "good", tmp_path / "bad", tmp_path / "weighbridge.yaml"
    good.write_text("Project Nightjar\n")
    bad.write_text("Project Heron\nNOTHING\tplanted\n")
    lines = "masking:\n  known_values:\n    default: {}\n    sales: {}\n    lab: {}\n"
    config.write_text(lines.format(good, bad, tmp_path / "none"))
    assert cli.main(["check", "--config", str(config)]) == 2
    sales, lab = capsys.readouterr().err.splitlines()
    assert sales == (
        f"{config}:4:5: masking.known_values.sales: {bad}:2: has an unknown entity type before the tab"
    )
    assert lab.startswith(f"{config}:5:5: masking.known_values.lab: {tmp_path}/none: cannot be read")
    config.write_text(f"masking:\n  known_values:\n    default: {good}\n")
    assert cli.main(["check", "--config", str(config)]) == 0


def test_check_finds_what_an_engine_would_refuse(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "weighbridge.yaml"
    config.write_text("tiers:\n  local-8b:\n    block_size: 16\n")
    monkeypatch.setattr("weighbridge.pool.preflight.on_cpu", lambda: True)
    assert cli.main(["check", "--config", str(config)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(
        f"{config}:3:5: tiers.local-8b.block_size: 16 is not legal on a CPU; legal: a multiple of 32"
    )
    assert len(err.splitlines()) == 1


def test_what_an_engine_would_refuse_is_placed_where_it_was_given(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "weighbridge.yaml"
    config.write_text("tiers:\n  local-8b:\n    seed: 1\n")
    monkeypatch.setattr("weighbridge.pool.preflight.on_cpu", lambda: True)
    monkeypatch.setattr("weighbridge.pool.preflight.vllm_installed", lambda: True)
    # It is for a whole process.
    monkeypatch.setattr("weighbridge.gateway.serve.setup_logging", lambda **_: None)
    monkeypatch.setenv("WEIGHBRIDGE_TIERS__LOCAL_8B__BLOCK_SIZE", "48")
    for command in (["check"], ["serve", "--port", "0", "--state-dir", str(tmp_path)]):
        assert cli.main([*command, "--config", str(config)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("environment: WEIGHBRIDGE_TIERS__LOCAL_8B__BLOCK_SIZE: 48 is not legal")
    monkeypatch.delenv("WEIGHBRIDGE_TIERS__LOCAL_8B__BLOCK_SIZE")
    monkeypatch.setattr("weighbridge.pool.preflight.CPU_BLOCK_STEP", 7)
    monkeypatch.setenv("WEIGHBRIDGE_TIERS", '{"local-70b": null}')
    assert cli.main(["check", "--config", str(config)]) == 2
    assert capsys.readouterr().err.startswith(f"{config}:2:3: tiers.local-8b.block_size: 32 is not legal")


def test_a_complaint_without_a_place_is_left_as_it_is(tmp_path: Path) -> None:
    config = tmp_path / "weighbridge.yaml"
    config.write_text("server:\n  port: 1\npolicies:\n  name: on-prem-only\n")
    for complaint in (
        "tiers.local-8b.seed: only the defaults give it",
        "vLLM is not installed: no field",
        "policies.yaml: no such file",
        "server.port: two\nlines",
    ):
        assert with_place(complaint, config, env={}) == complaint
    assert with_place("server.port: no", config, env={}) == f"{config}:2:3: server.port: no"
    assert with_place("server.port: no", tmp_path / "gone.yaml", env={}) == "server.port: no"


@pytest.mark.parametrize(
    "argv", [[], ["bogus"], ["serve", "--bogus"], ["serve", "--sta", "x"], ["key"], ["check", "--host", "x"]]
)
def test_a_wrong_command_line_is_one_line(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(argv)
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert len(captured.err.splitlines()) == 1
    assert captured.out == ""


@pytest.mark.parametrize(
    ("argv", "begins"),
    [
        (["--port", "none"], "command line: server.port: "),
        (["--8b", "/no/such/folder"], "command line: tiers.local-8b.model_path: no model folder"),
        (["--host", "0.0.0.0"], "command line: server.host: "),
        (["--config", "/no/such/file"], "/no/such/file: no such file"),
    ],
)
def test_serve_with_wrong_settings_is_one_line_and_2(
    argv: list[str], begins: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["serve", *argv]) == 2
    err = capsys.readouterr().err
    assert err.startswith(begins)
    assert len(err.splitlines()) == 1


def settings_of(*argv: str):  # type: ignore[no-untyped-def]
    args = cli._parser().parse_args(["serve", *argv])
    return load_settings(args.config, env={}, overrides=cli._overrides(args))


def test_the_command_line_goes_over_the_file(tmp_path: Path) -> None:
    config = tmp_path / "weighbridge.yaml"
    config.write_text("server:\n  port: 9001\n  drain_timeout_s: 3\nstate_dir: /from/file\n")
    settings = settings_of("--config", str(config), "--port", "9002", "--state-dir", str(tmp_path))
    assert (settings.server.port, settings.server.drain_timeout_s) == (9002, 3)
    assert settings.state_dir == tmp_path
    assert settings_of("--config", str(config)).server.port == 9001


def test_only_the_tiers_named_are_started(tmp_path: Path) -> None:
    small, large = model_folder(tmp_path / "small"), model_folder(tmp_path / "large")
    assert sorted(settings_of().tiers) == ["local-70b", "local-8b"]
    assert {road: tier.model_path for road, tier in settings_of("--8b", str(small)).tiers.items()} == {
        "local-8b": small
    }
    assert {road: tier.model_path for road, tier in settings_of("--70b", str(large)).tiers.items()} == {
        "local-70b": large
    }
    both = settings_of("--8b", str(small), "--70b", str(large)).tiers
    assert {road: tier.model_path for road, tier in both.items()} == {"local-8b": small, "local-70b": large}


def test_a_named_tier_keeps_the_files_other_settings(tmp_path: Path) -> None:
    small = model_folder(tmp_path / "small")
    config = tmp_path / "weighbridge.yaml"
    config.write_text("tiers:\n  local-8b:\n    max_num_seqs: 3\n")
    tier = settings_of("--config", str(config), "--8b", str(small)).tiers["local-8b"]
    assert (tier.model_path, tier.max_num_seqs) == (small, 3)


def test_a_new_key_and_its_hash_belong_together(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for _ in range(2):
        assert cli.main(["key", "new"]) == 0
        printed.append(yaml.safe_load(capsys.readouterr().out))
    for pair in printed:
        assert hashlib.sha256(pair["key"].encode()).hexdigest() == pair["sha256"]
        assert len(pair["key"]) > 40
    assert printed[0]["key"] != printed[1]["key"]
