"""The command line of the raw server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.goodput import settings
from bench.lib.engine_flags import differences, engine_flags, front_flags
from tests.support.process import REPOSITORY

USUAL = {
    "model": "somebody/else",
    "dtype": "auto",
    "seed": 0,
    "max_num_seqs": None,
    "enforce_eager": False,
    "use_tqdm_on_load": True,
    "device_ids": None,
    "extra": {},
}


def flags(**given: object) -> list[str]:
    return engine_flags({**USUAL, **given}, USUAL)


def test_what_is_as_usual_is_not_said() -> None:
    assert flags() == []


def test_no_text_is_as_good_as_none() -> None:
    assert engine_flags({"plugin": None, "other": ""}, {"plugin": "", "other": None}) == []
    assert differences({"plugin": None}, {"plugin": ""}) == []
    assert differences({"switch": None}, {"switch": False}) == ["switch"]


def test_the_model_is_no_flag() -> None:
    assert flags(model="/models/one") == []


def test_numbers_and_words_are_values() -> None:
    assert flags(max_num_seqs=64, dtype="bfloat16") == ["--dtype", "bfloat16", "--max-num-seqs", "64"]


def test_switches_have_no_value() -> None:
    assert flags(enforce_eager=True, use_tqdm_on_load=False) == ["--enforce-eager", "--no-use-tqdm-on-load"]


def test_one_and_nought_are_numbers_where_they_are_no_switch() -> None:
    assert engine_flags({"stream_interval": 1, "watermark": 0}, {"stream_interval": 4, "watermark": 2}) == [
        "--stream-interval",
        "1",
        "--watermark",
        "0",
    ]


def test_lists_have_many_values_and_mappings_are_json() -> None:
    assert flags(device_ids=[0, 2], extra={"a": 1}) == ["--device-ids", "0", "2", "--extra", '{"a": 1}']


@pytest.mark.parametrize("value", [None, object()])
def test_a_value_that_cannot_be_said_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="dtype"):
        flags(dtype=value)


def test_the_front_has_our_tool_parser_and_logs_no_requests() -> None:
    said = front_flags("hermes", 8123)
    assert said[said.index("--tool-call-parser") + 1] == "hermes" and "--enable-auto-tool-choice" in said
    assert "--disable-uvicorn-access-log" in said
    assert said[said.index("--port") + 1] == "8123" and said[said.index("--host") + 1] == "127.0.0.1"
    assert "--enable-auto-tool-choice" not in front_flags(None, 8123)


def test_one_name_in_a_list_is_that_name() -> None:
    ours = {"served_model_name": "local-8b", "seed": 0, "ids": (0, 1)}
    assert differences(ours, {"served_model_name": ["local-8b"], "seed": 0, "ids": [0, 1]}) == []
    assert differences(ours, {"served_model_name": ["other"], "seed": 1, "ids": [0]}) == [
        "served_model_name",
        "seed",
        "ids",
    ]


_READ_BACK = """
import os, sys
from pathlib import Path

import uvloop

from bench.lib import vllm_command
from bench.lib.answering import say
from bench.lib.raw_server import command, reach
from weighbridge.config.settings import load_settings

settings = load_settings(Path(sys.argv[1]), env={}).tiers["local-8b"]
reached = reach(settings)
args = reached.engine_args
words = command(args, settings, 8123)
served = []


def run(server):
    # What would listen now.
    served.append(server.cr_frame.f_locals["args"])
    server.close()


uvloop.run = run
sys.argv = ["vllm", "serve", *words]
vllm_command.main()
(server,) = served
say({
    "words": words,
    "bound": reached.environment.get("VLLM_CPU_OMP_THREADS_BIND"),
    "marked": reached.environment["_WEIGHBRIDGE_ENGINE_PARENT"].partition(":")[0] == str(os.getpid()),
    "left": "VLLM_CPU_OMP_THREADS_BIND" in os.environ,
    "quiet": reached.environment.get("VLLM_NO_USAGE_STATS"),
    "model": server.model == args.model,
    "port": server.port,
    "kv_cache": server.kv_cache_memory_bytes == args.kv_cache_memory_bytes,
    "access_log": not server.disable_uvicorn_access_log or server.enable_log_requests,
})
"""


@pytest.mark.engine
def test_vllm_reads_our_engine_from_the_command_line(tmp_path: Path) -> None:
    config = tmp_path / "weighbridge.yaml"
    config.write_text(json.dumps({"state_dir": str(tmp_path / "state"), **settings(50, cores=[0, 1])}))
    done = subprocess.run(
        [sys.executable, "-c", _READ_BACK, str(config)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout)
    words = said["words"]

    def after(flag: str) -> str:
        return words[words.index(flag) + 1]

    assert Path(words[0]).is_dir()
    assert after("--max-num-seqs") == "64" and after("--max-model-len") == "1024"
    assert after("--served-model-name") == "local-8b" and after("--block-size") == "32"
    assert int(after("--kv-cache-memory-bytes")) > 0
    assert said["bound"] == "1" and not said["left"]
    assert said["marked"] and said["quiet"] == "1"
    assert said["model"] and said["kv_cache"] and said["port"] == 8123 and not said["access_log"]
