"""The `collector` section of the settings: where usage records and metrics are shipped to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, SecretStr, model_validator

from weighbridge.config.legal import Count, ExistingFile, Real, endpoint
from weighbridge.config.problems import wrong
from weighbridge.config.section import Section, fill_secret
from weighbridge.config.shipped import shipped

_HEADER: Final = re.compile(
    r"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}):[ \t]*([\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?)[ \t]*"
)
_MOST_HEADERS: Final = 16
_OURS: Final = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    }
)
"""Headers that the shipper writes by itself, or that would change what it says."""


def check_headers(text: SecretStr) -> SecretStr:
    """`text` with one header a line and nothing else.

    Raises:
        ValueError: none there, too many, a line that is no header, or one that is the shipper's own.
    """
    lines = [line.strip() for line in text.get_secret_value().split("\n")]
    lines = [line for line in lines if line]
    if not 0 < len(lines) <= _MOST_HEADERS or any(len(line) > 4096 for line in lines):
        raise ValueError(f"must hold 1 to {_MOST_HEADERS} lines of at most 4096 characters")
    seen: set[str] = set()
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None:
            raise ValueError("must hold one header a line, 'name: value', in printable ASCII")
        name = found[1].lower()
        if name in _OURS:
            raise ValueError(f"must not hold the header {name}, which is written by the gateway")
        if name in seen:
            raise ValueError(f"must not hold the header {name} twice")
        seen.add(name)
    return SecretStr("\n".join(lines))


CollectorUrl = Annotated[str, AfterValidator(partial(endpoint, key_file="collector.headers_file"))]
Headers = Annotated[SecretStr, AfterValidator(check_headers)]


class CollectorSettings(Section):
    """The OpenTelemetry collector that usage records and metrics are shipped to."""

    endpoint: CollectorUrl | None = shipped(
        "collector.endpoint",
        "Base URL of an OTLP/HTTP receiver, such as `http://collector.internal:4318`; records go to `/v1/logs` below "
        "it, metrics to `/v1/metrics`, the spans of `traces.ratio` of the requests to `/v1/traces`. Null: records stay "
        "in the spool, and nothing is traced.",
        legal="an http(s) URL",
    )
    headers: Headers | None = Field(
        default=None,
        description="Headers that show who is shipping, one `name: value` a line. Environment only; in files use "
        "`headers_file`.",
    )
    headers_file: Path | None = shipped(
        "collector.headers_file", "File that holds these headers, one `name: value` a line."
    )
    ca_file: ExistingFile | None = shipped(
        "collector.ca_file",
        "PEM certificates that vouch for an `https` collector. Null: those the system trusts.",
    )
    compression: Literal["gzip", "none"] = shipped("collector.compression", "How requests are packed.")
    timeout_s: Real = shipped(
        "collector.timeout_s",
        "Seconds one request may take in all, connecting and its answer included.",
        ge=0.1,
        le=300,
    )
    batch_size: Count = shipped(
        "collector.batch_size",
        "Records in one request at most; what the memory of shipping is bounded by.",
        ge=1,
        le=10_000,
    )
    interval_s: Real = shipped(
        "collector.interval_s", "Seconds between two looks for new records.", ge=0.05, le=3600
    )
    metrics_interval_s: Real | None = shipped(
        "collector.metrics_interval_s",
        "Seconds between two exports of the metrics. Null: none are exported.",
        ge=1,
        le=3600,
    )
    degraded_after_s: Real = shipped(
        "collector.degraded_after_s",
        "Seconds that the oldest unshipped record may wait before readiness says `degraded`.",
        gt=0,
        le=31_536_000,
    )

    @model_validator(mode="after")
    def _complete(self) -> CollectorSettings:
        fill_secret(self, "headers", "headers_file", check_headers)
        if self.headers is not None and self.endpoint is None:
            raise wrong("headers_file", "is of no use without collector.endpoint")
        if self.ca_file is not None and not (self.endpoint or "").startswith("https://"):
            raise wrong("ca_file", "is of use with an https collector.endpoint only")
        return self

    @property
    def header_lines(self) -> Mapping[str, str]:
        """The headers by name."""
        if self.headers is None:
            return {}
        pairs = (line.partition(":") for line in self.headers.get_secret_value().split("\n"))
        return {name: value.strip() for name, _, value in pairs}
