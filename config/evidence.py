"""What can be seen of a local answer that speaks against it: a closed set, as metrics and records name it too."""

from __future__ import annotations

from typing import Literal

Evidence = Literal[
    "invalid_json",
    "invalid_tool_call",
    "empty",
    "refusal",
    "wrong_language",
    "repetition",
    "length",
    "low_logprob",
]
