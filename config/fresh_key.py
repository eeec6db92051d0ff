"""Making API keys and admin keys."""

from __future__ import annotations

import base64
import re
import secrets
from collections.abc import Callable
from typing import Final

KEY_PREFIX: Final = "wb-"
_KEY_BYTES: Final = 32

_KEY: Final = re.compile(re.escape(KEY_PREFIX) + r"[A-Za-z0-9_-]{43}")

RandomBytes = Callable[[int], bytes]


def fresh_key(random_bytes: RandomBytes = secrets.token_bytes) -> str:
    """A key of 256 random bits."""
    return KEY_PREFIX + base64.urlsafe_b64encode(random_bytes(_KEY_BYTES)).rstrip(b"=").decode()


def holds_key(text: str) -> bool:
    """Whether a text holds something of the shape of a key: it was pasted into the wrong place, and would be kept."""
    return _KEY.search(text) is not None
