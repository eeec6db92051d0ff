"""Masking ahead: the mask of a request that waits for a slot is made while it waits, in case it has to leave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

from weighbridge.masking.detector_queue import Speculation
from weighbridge.masking.errors import PASSING, MaskingRefused
from weighbridge.masking.request import MaskedRequest

BEGIN_AFTER_S: Final = 0.01
"""A wait that is over sooner has cost no masking."""

Mask = Callable[[Speculation | None], Coroutine[Any, Any, MaskedRequest]]


class MaskAhead:
    """The mask of one request.

    Args:
        mask: makes it; given a speculation, only while nobody else needs the detectors.
        depends: what a mask depends on besides the request and its policy; when that has changed, one that was made
            ahead is not used.
    """

    def __init__(self, mask: Mask, depends: Callable[[], object] = lambda: None) -> None:
        self._mask = mask
        self._depends = depends
        self._made_under: object = None
        self._speculation = Speculation()
        self._task: asyncio.Task[MaskedRequest] | None = None
        self._made: MaskedRequest | None = None

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Within, the request waits for a slot. If that takes long enough, masking begins."""
        begin = asyncio.get_running_loop().call_later(BEGIN_AFTER_S, self._begin)
        try:
            yield
        finally:
            begin.cancel()

    async def masked(self) -> MaskedRequest:
        """The masked request, now that it is needed.

        Raises:
            MaskingRefused: it must not leave.
            InvalidRequest: a known field has a wrong type.
        """
        if self._depends() != self._made_under:
            self.drop()
        if self._made is not None:
            return self._made
        if self._task is not None:
            self._speculation.promote()
            try:
                return await self._task
            except MaskingRefused as refusal:
                # It may have had to give way to requests that were needed when this one was not.
                if refusal.reason not in PASSING:
                    raise
        under = self._depends()
        made = await self._mask(None)
        self._made_under, self._made = under, made
        return made

    def drop(self) -> None:
        """It is not needed: the request is served here, or gone. Idempotent."""
        self._made = None
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._speculation = Speculation()

    def _begin(self) -> None:
        if self._task is None and self._made is None:
            self._made_under = self._depends()
            self._task = asyncio.create_task(self._mask(self._speculation), name="mask-ahead")
            # Whether anybody asks for its result or not, asyncio is not to complain.
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
