"""`curl -N` on real vLLM: the bytes of a stream as they come, and the heads that go with them."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.e2e.conftest import API_KEY, Served

pytestmark = pytest.mark.engine
KOREAN = "한글 \u1112\u1161\u11ab ㅎㅏㄴ 값 뷁 🙂👩‍👩‍👧"


def curl(
    served: Served, path: str, body: dict[str, Any] | None = None, *more: str
) -> tuple[list[str], bytes]:
    """The lines of the head, and the body byte for byte."""
    sent = [] if body is None else ["-d", json.dumps(body), "-H", "content-type: application/json"]
    done = subprocess.run(
        [
            "curl",
            "-sS",
            "-N",
            "-i",
            "-H",
            f"authorization: Bearer {API_KEY}",
            *sent,
            *more,
            served.process.url + path,
        ],
        capture_output=True,
        timeout=120,
        check=True,
    )
    head, _, rest = done.stdout.partition(b"\r\n\r\n")
    return head.decode("ascii").lower().split("\r\n"), rest


def requests_of(text: str) -> list[tuple[str, dict[str, Any]]]:
    common = {
        "model": "local-8b",
        "stream": True,
        "max_tokens": 200,
        "structured_outputs": {"choice": [text]},
    }
    return [
        ("/v1/chat/completions", {**common, "messages": [{"role": "user", "content": "따라 하세요."}]}),
        ("/v1/completions", {**common, "prompt": "따라 하세요."}),
    ]


@pytest.mark.parametrize("which", [0, 1], ids=["chat", "text"])
def test_the_bytes_of_a_stream(served: Served, which: int) -> None:
    path, body = requests_of(KOREAN)[which]
    head, raw = curl(served, path, body)
    assert head[0] == "http/1.1 200 ok"
    assert "content-type: text/event-stream; charset=utf-8" in head
    assert "cache-control: no-cache" in head and "x-accel-buffering: no" in head
    assert "transfer-encoding: chunked" in head
    assert not [line for line in head if line.startswith(("content-length", "access-control-"))]
    raw.decode("utf-8")
    assert b"\r" not in raw and raw.endswith(b"data: [DONE]\n\n") and raw.count(b"[DONE]") == 1
    events = raw.removesuffix(b"\n\n").split(b"\n\n")
    assert all(event.startswith(b"data: ") and b"\n" not in event for event in events)
    chunks = [json.loads(event[6:]) for event in events[:-1]]
    pieces = [
        (choice["delta"].get("content") or "") if which == 0 else choice["text"]
        for chunk in chunks
        for choice in chunk["choices"]
    ]
    assert "".join(pieces) == KOREAN and not any("\ufffd" in piece for piece in pieces)
    assert len([piece for piece in pieces if piece]) > 5, "it did not come in pieces"


def test_it_comes_while_it_is_made(served: Served) -> None:
    body = {"model": "local-8b", "stream": True, "max_tokens": 80, "ignore_eos": True}
    body["messages"] = [{"role": "user", "content": "Count."}]
    address = f"{served.process.url}/v1/chat/completions"
    process = subprocess.Popen(
        ["curl", "-sSN", "-H", f"authorization: Bearer {API_KEY}", "-d", json.dumps(body), address],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    assert first.startswith(b"data: {")
    assert served.slots_in_use() >= 1, "the first event came when all was over"
    rest = process.stdout.read()
    assert process.wait(60) == 0 and rest.endswith(b"data: [DONE]\n\n")


def test_a_document_has_its_length(served: Served) -> None:
    for path, body in requests_of("weigh this word"):
        head, raw = curl(served, path, {**body, "stream": False})
        assert f"content-length: {len(raw)}" in head and "content-type: application/json" in head
        assert json.loads(raw)["usage"]["completion_tokens"] > 0


@pytest.mark.parametrize(
    ("arguments", "status"), [(("-I",), "405"), (("-X", "OPTIONS"), "405"), (("-X", "PUT"), "405")]
)
def test_other_methods_end_clean(served: Served, arguments: tuple[str, ...], status: str) -> None:
    head, raw = curl(served, "/v1/chat/completions", None, *arguments)
    assert head[0].split()[1] == status and "allow: post" in head
    assert (raw == b"") == (arguments == ("-I",))
