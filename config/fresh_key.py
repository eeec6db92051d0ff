"""Making API keys and admin keys."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable
from typing import Final

KEY_PREFIX: Final = "wb-"
_KEY_BYTES: Final = 32

RandomBytes = Callable[[int], bytes]


def fresh_key(random_bytes: RandomBytes = secrets.token_bytes) -> str:
    """A key of 256 random bits."""
    return KEY_PREFIX + base64.urlsafe_b64encode(random_bytes(_KEY_BYTES)).rstrip(b"=").decode()
