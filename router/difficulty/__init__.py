"""The difficulty score: pure functions of the request, no network."""

from typing import Final

from weighbridge.router.difficulty.compiled import put_in_front

COMPILED: Final = put_in_front(__path__)
"""Whether what scores a request is compiled code. It makes no difference but in time."""
