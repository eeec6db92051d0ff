"""Single checks: which URLs, hosts and values are legal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.config.legal import endpoint, is_loopback


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com/v1",
        "http://127.0.0.1:9999/v1",
        "http://[::1]:9999",
        "https://gateway.internal/openai/v1/",
    ],
)
def test_endpoints(url: str) -> None:
    assert endpoint(url) == url.rstrip("/")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "api.example.com/v1",
        "//api.example.com/v1",
        "ftp://api.example.com/v1",
        "file:///etc/passwd",
        "https://",
        "https:///v1",
        "https://user@api.example.com/v1",
        "https://user:pw@api.example.com/v1",
        "https://@api.example.com/v1",
        "https://api.example.com/v1?key=1",
        "https://api.example.com/v1?",
        "https://api.example.com/v1#x",
        "https://api.example.com:99999/v1",
        "https://api.example.com:0/v1",
        "https://api.example.com:port/v1",
        "https://api.example.com\\@evil.example/v1",
        "https://api.example.com /v1",
        "https://api.example.com/v1\n",
        "https://api\t.example.com/v1",
        "https://예시.example/v1",
        "https://[::1/v1",
    ],
)
def test_no_endpoints(url: str) -> None:
    with pytest.raises(ValueError, match=r"must|is not a URL"):
        endpoint(url)


@given(st.text(max_size=60))
def test_any_text_is_an_endpoint_or_refused(text: str) -> None:
    try:
        url = endpoint(f"http{text}")
    except ValueError:
        return
    assert url.startswith(("http://", "https://"))
    assert not set(url) & set(" ?#\\\n\t@".replace("@", ""))


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.1", False),
        ("localhost.example.com", False),
        ("127.0.0.1.example.com", False),
        ("", False),
    ],
)
def test_loopback(host: str, local: bool) -> None:
    assert is_loopback(host) is local
