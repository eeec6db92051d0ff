"""The tokens an answer says it has."""

from __future__ import annotations

import re

_COMPLETION = re.compile(rb'"completion_tokens": *(\d+)')


def completion_tokens(answer: bytes | bytearray) -> int | None:
    """Completion tokens of a document or of a whole stream; None where it reports none.

    Cheap enough to run beside what is measured: only the end of the answer is looked at, where usage stands.
    """
    found = _COMPLETION.findall(answer, max(0, len(answer) - 2048))
    return int(found[-1]) if found else None
