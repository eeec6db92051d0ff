"""The words providers give for a refusal, as far as they are told on."""

from __future__ import annotations

from typing import Any, Final

KNOWN: Final = frozenset(
    {
        "account_deactivated",
        "api_error",
        "array_above_max_length",
        "array_below_min_length",
        "authentication_error",
        "bad_request",
        "billing_hard_limit_reached",
        "billing_not_active",
        "content_filter",
        "content_policy_violation",
        "context_length_exceeded",
        "decimal_above_max_value",
        "decimal_below_min_value",
        "empty_array",
        "insufficient_quota",
        "integer_above_max_value",
        "integer_below_min_value",
        "invalid_api_key",
        "invalid_function_parameters",
        "invalid_json",
        "invalid_json_schema",
        "invalid_organization",
        "invalid_parameter",
        "invalid_prompt",
        "invalid_request_error",
        "invalid_schema",
        "invalid_tool_call",
        "invalid_type",
        "invalid_value",
        "missing_required_parameter",
        "model_not_found",
        "moderation_blocked",
        "not_found",
        "not_found_error",
        "overloaded_error",
        "permission_denied",
        "permission_error",
        "rate_limit_error",
        "rate_limit_exceeded",
        "request_too_large",
        "server_error",
        "string_above_max_length",
        "string_below_min_length",
        "tokens_limit_reached",
        "unauthorized",
        "unknown_parameter",
        "unknown_url",
        "unsupported_country_region_territory",
        "unsupported_parameter",
        "unsupported_value",
    }
)
"""Codes and types of the common APIs. Any other word might be one of the request's own, so it is not repeated."""


def known_word(*said: Any) -> str | None:
    """The first of these that is a word we know."""
    return next((word for word in said if isinstance(word, str) and word in KNOWN), None)
