"""What all sections of the settings are made from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pydantic import BaseModel, ConfigDict, SecretStr

from weighbridge.config.legal import read_secret
from weighbridge.config.problems import wrong


class Section(BaseModel):
    """What all sections share: unknown keys are refused, nothing changes after the start."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True, hide_input_in_errors=True
    )


def fill_secret(
    section: Section,
    field: str,
    file_field: str,
    check: Callable[[SecretStr], SecretStr] | None = None,
) -> None:
    """Read the secret from its file, so that nobody else has to know where it came from."""
    path: Path | None = getattr(section, file_field)
    if path is None:
        return
    if getattr(section, field) is not None:
        raise wrong(file_field, f"stands beside {field}: give one of them")
    try:
        secret: SecretStr = read_secret(path.expanduser(), check)
    except (ValueError, RuntimeError) as exc:
        raise wrong(file_field, str(exc)) from None
    object.__setattr__(section, field, secret)  # the section is frozen for everybody else
