"""Why a request may not leave, by code. `masking.errors` explains each; metrics and answers name them."""

from __future__ import annotations

from typing import Literal, get_args

Reason = Literal[
    "placeholder_shaped_input",
    "not_text",
    "too_large",
    "unknown_field_type",
    "bad_arguments",
    "key_hit",
    "number",
    "blocked_term",
    "free_text",
    "no_name_detector",
    "refused_type",
    "many_people",
    "credentials",
    "encoded",
    "mixed_script",
    "language",
    "second_look",
    "known_values",
    "detector_failed",
    "timeout",
    "overloaded",
    "internal",
]

REASONS: tuple[Reason, ...] = get_args(Reason)
"""A closed set, fit for a metric label."""
