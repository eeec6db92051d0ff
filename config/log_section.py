"""The section of the settings about the log."""

from __future__ import annotations

from typing import Literal

from weighbridge.config.section import Section
from weighbridge.config.shipped import shipped


class LogSettings(Section):
    """What the gateway writes to stderr."""

    format: Literal["text", "json"] = shipped(
        "log.format",
        "`text`: a line to be read. `json`: one object a line, with `request_id` where it is about a request.",
    )
