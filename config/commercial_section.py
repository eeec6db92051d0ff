"""The `commercial` section of the settings: where masked requests may go."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from weighbridge.config.legal import NAME_LEGAL, NAME_PATTERN, AnyPath, Count, Real, Secret, endpoint
from weighbridge.config.problems import wrong
from weighbridge.config.section import Section, fill_secret
from weighbridge.config.shipped import shipped

MAIN: Final = "main"
"""The name of the endpoint that stands in the section itself."""

_MODEL_PATTERN: Final = r"^[\x21-\x7e]{0,256}$"
_MODEL_LEGAL: Final = "text of at most 256 printable ASCII characters without spaces"
_WINDOW: Final = "Context window of that model in tokens. Null: not known, not checked."


class Endpoint(Section):
    """One OpenAI-compatible API."""

    base_url: Annotated[str, AfterValidator(partial(endpoint, key_file="api_key_file"))] = Field(
        description="Base URL of an OpenAI-compatible API.", json_schema_extra={"legal": "an http(s) URL"}
    )
    model: str = Field(
        description="Model name sent to that API.",
        pattern=_MODEL_PATTERN,
        min_length=1,
        json_schema_extra={"legal": "text of 1 to 256 printable ASCII characters without spaces"},
    )
    api_key: Secret | None = Field(
        default=None,
        description="Key of that API. Only in `WEIGHBRIDGE_COMMERCIAL__ENDPOINTS`; in files use `api_key_file`.",
    )
    api_key_file: Path | None = Field(default=None, description="File that holds the key of that API.")
    max_context_tokens: Count | None = Field(default=None, ge=1, description=_WINDOW)

    @model_validator(mode="after")
    def _complete(self) -> Endpoint:
        fill_secret(self, "api_key", "api_key_file")
        return self


EndpointName = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]


class CommercialSettings(Section):
    """The commercial APIs, one of the two switches of egress."""

    base_url: Annotated[str, AfterValidator(endpoint)] | None = shipped(
        "commercial.base_url",
        "Base URL of an OpenAI-compatible API, such as `https://api.example.com/v1`; the endpoint called `main`. Null "
        "here and no `endpoints`: nothing leaves.",
        legal="an http(s) URL",
    )
    model: str = shipped(
        "commercial.model",
        "Model name sent to that API; needed with `base_url`.",
        legal=_MODEL_LEGAL,
        pattern=_MODEL_PATTERN,
    )
    api_key: Secret | None = Field(
        default=None, description="Key of that API. Environment only; in files use `api_key_file`."
    )
    api_key_file: Path | None = shipped("commercial.api_key_file", "File that holds the key of that API.")
    max_context_tokens: Count | None = shipped("commercial.max_context_tokens", _WINDOW, ge=1)
    endpoints: dict[EndpointName, Endpoint] = shipped(
        "commercial.endpoints",
        "Further endpoints by name, tried in the order that the policy's `endpoints` gives, else after `main` as they "
        "stand here.",
        keys=NAME_LEGAL,
    )
    breaker_failures: Count = shipped(
        "commercial.breaker_failures",
        "Failures in a row after which an endpoint is left alone for `breaker_rest_s`.",
        ge=1,
        le=1000,
    )
    breaker_rest_s: Real = shipped(
        "commercial.breaker_rest_s",
        "Seconds until one request tries such an endpoint again; the others go on passing it by until that one is "
        "answered.",
        gt=0,
        le=3600,
    )
    kill_switch_file: AnyPath | None = shipped(
        "commercial.kill_switch_file",
        "While there is a file at this path nothing leaves; looked at before every egress. Its folder must be there.",
    )

    @model_validator(mode="after")
    def _complete(self) -> CommercialSettings:
        if self.base_url is not None and not self.model:
            raise wrong("model", "is needed with commercial.base_url: the model name sent to that API")
        if MAIN in self.endpoints:
            raise wrong(
                ("endpoints", MAIN),
                "this name belongs to the endpoint of commercial.base_url: choose another",
            )
        fill_secret(self, "api_key", "api_key_file")
        return self

    @property
    def all_endpoints(self) -> Mapping[str, Endpoint]:
        """Every endpoint by name, `main` first where there is one."""
        found: dict[str, Endpoint] = {}
        if self.base_url is not None:
            found[MAIN] = Endpoint(
                base_url=self.base_url,
                model=self.model,
                api_key=self.api_key,
                max_context_tokens=self.max_context_tokens,
            )
        return MappingProxyType(found | self.endpoints)
