"""The collector's section: one address, credentials from a file, nothing loose."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr

from weighbridge.config.collector_section import CollectorSettings, check_headers
from weighbridge.config.problems import ConfigProblems
from weighbridge.config.settings import effective, load_settings

URL = "http://collector.internal:4318"


def test_without_an_endpoint_nothing_is_shipped() -> None:
    made = load_settings(None, env={}).collector
    assert made.endpoint is None
    assert made.header_lines == {}


def test_headers_come_from_a_file_and_are_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("Authorization: Bearer s3cret\r\n\nX-Scope: a:b c \n")
    settings = load_settings(
        None, env={}, overrides={"collector": {"endpoint": f"{URL}/", "headers_file": str(file)}}
    )
    assert settings.collector.endpoint == URL
    assert settings.collector.header_lines == {"Authorization": "Bearer s3cret", "X-Scope": "a:b c"}
    assert "s3cret" not in repr(settings) + str(effective(settings))


@pytest.mark.parametrize(
    ("given_", "field", "why"),
    [
        ({"endpoint": "collector:4318"}, "endpoint", "http://"),
        ({"endpoint": "http://user:pw@collector"}, "endpoint", "collector.headers_file"),
        ({"endpoint": f"{URL}?a=b"}, "endpoint", "query"),
        ({"endpoint": "unix:///run/otel.sock"}, "endpoint", "http://"),
        ({"headers": "a: b"}, "headers_file", "collector.endpoint"),
        ({"endpoint": URL, "ca_file": __file__}, "ca_file", "https"),
        ({"endpoint": URL, "headers_file": "/no/such/file"}, "headers_file", "/no/such/file"),
        ({"endpoint": URL, "compression": "zstd"}, "compression", "gzip"),
        ({"endpoint": URL, "timeout_s": 0}, "timeout_s", "0.1"),
        ({"endpoint": URL, "batch_size": 0}, "batch_size", "1"),
        ({"endpoint": URL, "batch_size": True}, "batch_size", "number"),
        ({"endpoint": URL, "interval_s": 0}, "interval_s", "0.05"),
        ({"endpoint": URL, "metrics_interval_s": 0}, "metrics_interval_s", "1"),
        ({"endpoint": URL, "degraded_after_s": 0}, "degraded_after_s", "0"),
        ({"endpoint": URL, "proxy": "x"}, "proxy", ""),
    ],
)
def test_what_is_wrong_is_named(given_: dict[str, object], field: str, why: str) -> None:
    with pytest.raises(ConfigProblems) as caught:
        load_settings(None, env={}, overrides={"collector": given_})
    assert f"collector.{field}" in str(caught.value)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "no colon",
        "a b: c",
        ": c",
        "a:",
        "a: b\x00c",
        "a: 한국어",
        "Host: x",
        "content-length: 3",
        "Transfer-Encoding: chunked",
        "connection: keep-alive",
        "a: b\nA: c",
        f"a: {'b' * 5000}",
        "\n".join(f"a{n}: b" for n in range(17)),
    ],
)
def test_what_is_no_header_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        check_headers(SecretStr(text))
    assert "bbb" not in str(caught.value)


@settings(deadline=None)
@given(st.text(max_size=60))
def test_no_text_of_a_file_can_end_a_header_early(text: str) -> None:
    try:
        made = CollectorSettings(endpoint=URL, headers=SecretStr(text))
    except ValueError:
        return
    for name, value in made.header_lines.items():
        assert not set("\r\n\0") & set(name + value)
        assert name and value and ":" not in name and name == name.strip()
