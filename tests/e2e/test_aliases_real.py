"""Aliases, and the addresses that are not served, as the `openai` client meets them."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from openai import APIStatusError, NotFoundError, OpenAI

from tests.e2e.conftest import Served

pytestmark = pytest.mark.engine


def test_an_alias_is_asked_for_like_any_model(served: Served) -> None:
    raw = served.openai.chat.completions.with_raw_response.create(
        model="gpt-4o-mini", messages=[{"role": "user", "content": "Hello"}], max_tokens=4
    )
    assert (raw.headers["x-weighbridge-road"], raw.parse().model) == ("local-8b", "local-8b")
    assert served.row(raw.headers["x-weighbridge-request-id"])["model_requested"] == "gpt-4o-mini"
    about = served.openai.models.retrieve("gpt-4o").model_dump()["weighbridge"]
    assert about["alias_of"] == "auto"


def test_an_alias_that_leaves_the_policy_is_gone(served: Served) -> None:
    served.put_policy(aliases={})
    try:
        with pytest.raises(NotFoundError) as gone:
            served.openai.chat.completions.create(model="gpt-4o", messages=[{"role": "user", "content": "x"}])
        assert gone.value.code == "model_not_found"
    finally:
        served.put_policy()


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.embeddings.create(model="local-8b", input="x"),
        lambda client: client.responses.create(model="local-8b", input="x"),
        lambda client: client.responses.retrieve("resp_1"),
    ],
    ids=["embeddings", "responses", "one response"],
)
def test_what_is_not_served_yet_is_501(served: Served, call: Callable[[OpenAI], object]) -> None:
    with pytest.raises(APIStatusError) as refused:
        call(served.openai)
    assert (refused.value.status_code, refused.value.code) == (501, "not_implemented")


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("HEAD", "/v1/models", 200, None),
        ("HEAD", "/v1/chat/completions", 405, "POST"),
        ("OPTIONS", "/v1/chat/completions", 405, "POST"),
        ("OPTIONS", "/v1/completions", 405, "POST"),
        ("OPTIONS", "/v1/models", 405, "GET, HEAD"),
        ("HEAD", "/v1/embeddings", 501, None),
    ],
)
def test_head_and_options_over_the_wire(
    served: Served, method: str, path: str, status: int, allow: str | None
) -> None:
    origin = {"origin": "http://localhost:3000", "access-control-request-method": "POST"}
    # One connection for both: a body after HEAD would be taken for the next answer.
    with httpx.Client(base_url=served.process.url, headers=served.http.headers) as http:
        answer = http.request(method, path, headers=origin)
        assert (answer.status_code, answer.headers.get("allow")) == (status, allow)
        assert method != "HEAD" or answer.content == b""
        assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert http.get("/health/live").json() == {"status": "alive"}
