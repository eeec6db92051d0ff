"""Why a request may not leave."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from weighbridge.config.refusals import REASONS, Reason

__all__ = ["EXPLAINED", "PASSING", "REASONS", "MaskingRefused", "Reason"]

EXPLAINED: Mapping[Reason, str] = MappingProxyType(
    {
        "placeholder_shaped_input": "the request already holds something that looks like one of our placeholders",
        "not_text": "an image, sound, file or unknown content part",
        "too_large": "more text, values or hits than one request may hold",
        "unknown_field_type": "a field has a type or value that the walker does not know",
        "bad_arguments": "tool-call arguments are not JSON",
        "key_hit": "a dictionary key or a name holds a value that would have to be masked",
        "number": "a bare number of seven or more digits stands where no text can replace it",
        "blocked_term": "a term or a document marking of the policy's",
        "free_text": "prose, which the policy keeps in",
        "no_name_detector": "prose in a language in which no layer here finds names",
        "refused_type": "a value of a type that the policy refuses, such as a resident registration number",
        "many_people": "personal data of more people than the policy lets out at a time",
        "credentials": "a password, key or token",
        "encoded": "base64, hexadecimal or percent signs that hide a value, or too much to tell",
        "mixed_script": "a word of look-alike letters from several scripts",
        "language": "prose in a language that no layer reads",
        "second_look": "the last look at the final bytes found something",
        "known_values": "the tenant's list of values cannot be read",
        "detector_failed": "the detector process died, answered nonsense or could not be started",
        "timeout": "masking took too long",
        "overloaded": "the queue before masking is full",
        "internal": "our own fault",
    }
)
"""What each reason means, in words."""

PASSING: frozenset[Reason] = frozenset(
    {"known_values", "detector_failed", "timeout", "overloaded", "internal"}
)
"""Reasons that lie in us; the same request may pass later. All others lie in the request itself."""


class MaskingRefused(Exception):
    """The request must not leave; terminal for every outward road. Carries a reason code and nothing of the text."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason: Reason = reason
