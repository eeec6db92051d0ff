"""The official `openai` client for Node, unmodified on real vLLM."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import API_KEY, Served

pytestmark = pytest.mark.engine
CLIENT = "openai@6.49.0"
"""The newest line that runs on Node 20."""
SCRIPT = Path(__file__).with_name("node_client.mjs")
KOREAN = "한글 \u1112\u1161\u11ab ㅎㅏㄴ 값 뷁 🙂👩‍👩‍👧"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script beside a fresh installation of the client; no script of the package is run."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("not run: Node and npm are not installed here")
    folder = tmp_path_factory.mktemp("node")
    (folder / "package.json").write_text('{"private": true}')
    command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=0", CLIENT]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        pytest.skip("not run: npm's registry did not answer within 120 s")
    if done.returncode != 0:
        codes = [line.split()[-1] for line in done.stderr.splitlines() if line.startswith("npm error code")]
        unreachable = {"ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ECONNRESET", "ETIMEDOUT", "ENETUNREACH"}
        assert set(codes) & unreachable, done.stderr[-2000:]
        pytest.skip(f"not run: npm has no registry here ({codes[0]})")
    shutil.copy(SCRIPT, folder)
    return folder / SCRIPT.name


def test_the_node_client_is_served(served: Served, program: Path) -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "GATEWAY_URL": f"{served.process.url}/v1",
        "GATEWAY_KEY": API_KEY,
        "KOREAN": KOREAN,
    }
    done = subprocess.run(
        ["node", program.name],
        cwd=program.parent,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert told["text"] and told["text"] == told["streamed"]
    assert told["usage"]["completion_tokens"] == told["streamedUsage"]["completion_tokens"] <= 12
    assert told["road"] == "local-8b"
    assert told["korean"] == KOREAN
    assert isinstance(told["arguments"]["city"], str)
    assert told["completion"]
    assert {"auto", "local-8b", "gpt-4o"} <= set(told["models"])
    assert told["errors"] == {
        "missing": {"kind": "NotFoundError", "status": 404, "code": "model_not_found", "param": "model"},
        "wrong": {"kind": "BadRequestError", "status": 400, "code": None, "param": "temperature"},
        "notServed": {"kind": "InternalServerError", "status": 501, "code": "not_implemented", "param": None},
    }
