"""From a request body to the only thing that may leave."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec

from weighbridge.config.clock import Clock
from weighbridge.config.deadline import Deadline
from weighbridge.config.errors import InvalidRequest
from weighbridge.config.folders import models_folder
from weighbridge.config.offload import MASKING, is_small
from weighbridge.config.settings import MaskingSettings
from weighbridge.masking import wire
from weighbridge.masking.backstop import leftovers
from weighbridge.masking.body import Plan, plan_body, with_instruction
from weighbridge.masking.detector_child import DetectorChild
from weighbridge.masking.detector_pool import Child, DetectorPool
from weighbridge.masking.entities import PLACEHOLDER_SHAPE, Span, gap_places, gaps, merge
from weighbridge.masking.errors import MaskingRefused
from weighbridge.masking.layers.base import LayerOptions
from weighbridge.masking.request import MaskedRequest
from weighbridge.masking.seal import seal_request
from weighbridge.masking.vault import Mint, derive_key
from weighbridge.masking.walker import Leaf, Walker, Whole, render

log = logging.getLogger(__name__)


_INLINE_NODES, _INLINE_CHARS = 500, 16_000
"""Values and characters of a request up to which its masked body is put together on the event loop."""


class Masker:
    """Masks requests with a pool of detector processes.

    Args:
        settings: `masking` section.
        clock: as everywhere.
        start_child: starts one detector process; tests pass their own.
    """

    def __init__(
        self,
        settings: MaskingSettings,
        clock: Clock,
        *,
        start_child: Callable[[], Coroutine[Any, Any, Child]] | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        secret = settings.secret
        self._secret = secrets.token_bytes(32) if secret is None else secret.get_secret_value().encode()
        setup = wire.Setup(
            tuple(settings.layers),
            LayerOptions(
                score_threshold=settings.score_threshold,
                models_dir=str(settings.models_dir or models_folder()),
                local_model="" if settings.local_model is None else str(settings.local_model),
            ),
        )
        self._pool = DetectorPool(
            start_child or (lambda: DetectorChild.start(setup)),
            workers=settings.workers,
            max_queue=settings.max_queue,
            task_timeout_s=settings.task_timeout_s,
        )

    @property
    def ready(self) -> bool:
        """Whether a detector process is up."""
        return self._pool.ready

    async def start(self) -> None:
        """Start the detector processes. Never raises; see `ready`."""
        await self._pool.start()

    async def close(self) -> None:
        """End the detector processes. Idempotent."""
        await self._pool.close()

    async def mask(
        self,
        body: dict[str, Any],
        *,
        request_id: str,
        upstream_model: str,
        conversation: str,
        deadline: Deadline,
    ) -> MaskedRequest:
        """Build the masked request.

        Args:
            body: the decoded chat-completions body; not changed.
            request_id: the id made at admission.
            upstream_model: model name for the commercial API.
            conversation: whose placeholders these are, tenant included: the same value has the same placeholder in
                requests of one conversation and unrelated ones in others.
            deadline: the request's; `masking.task_timeout_s` shortens it.

        Raises:
            MaskingRefused: it must not leave.
            InvalidRequest: a known field has a wrong type.
        """
        try:
            return await self._mask(body, request_id, upstream_model, conversation, deadline)
        except (MaskingRefused, InvalidRequest):
            raise
        except Exception as exc:
            # The exception may hold text; only its class is told.
            log.error("masking failed with %s", type(exc).__name__)
            raise MaskingRefused("internal") from None

    async def _mask(
        self,
        body: dict[str, Any],
        request_id: str,
        upstream_model: str,
        conversation: str,
        deadline: Deadline,
    ) -> MaskedRequest:
        # Long requests take tens of milliseconds before and after the detectors, which other streams would feel.
        long = not is_small(body, nodes=_INLINE_NODES, chars=_INLINE_CHARS)
        planning = partial(
            _plan,
            body,
            self._settings.max_chars,
            upstream_model,
            derive_key(self._secret, "ids", conversation),
        )
        walker, plan = await MASKING.run(planning) if long else planning()
        found = await self._pool.find(walker.texts, deadline, owner=conversation)
        mint = Mint(derive_key(self._secret, "placeholders", conversation))
        sealing = partial(self._seal, request_id, plan, walker, found, mint)
        return await MASKING.run(sealing) if long else sealing()

    def _seal(
        self, request_id: str, plan: Plan, walker: Walker, found: list[list[Span]], mint: Mint
    ) -> MaskedRequest:
        final = msgspec.json.encode(_fill_in(plan, walker, found, mint))
        return seal_request(
            request_id=request_id,
            body=final,
            stream=plan.stream,
            entities=mint.counts(),
            detector_version=self._pool.about.detector_version,
            body_hash=keyed_hash(self._secret, final),
            vault=mint.vault(plan.json_answer),
        )


def _plan(body: dict[str, Any], max_chars: int, upstream_model: str, id_key: bytes) -> tuple[Walker, Plan]:
    walker = Walker(max_chars)
    return walker, plan_body(body, walker, upstream_model, id_key)


def keyed_hash(secret: bytes, body: bytes) -> str:
    """What the egress record keeps of the bytes: nobody without the secret can test a guess against it."""
    return hmac.digest(derive_key(secret, "egress record"), body, hashlib.sha256).hex()


def mask_text(text: str, spans: list[Span], mint: Mint) -> str:
    """`text` with a placeholder for each span, and for whatever the second look still finds between them."""
    pieces: list[str] = []
    for number, gap in enumerate(gaps(text, spans)):
        if number:
            start, end, entity = spans[number - 1]
            pieces.append(mint.placeholder(entity, text[start:end]))
        left = leftovers(gap)
        for part, rest in enumerate(gaps(gap, left)):
            if part:
                start, end, entity = left[part - 1]
                pieces.append(mint.placeholder(entity, gap[start:end]))
            pieces.append(rest)
    return "".join(pieces)


def _over_borders(walker: Walker, found: list[list[Span]]) -> list[list[Span]]:
    """`found`, and in each text the piece of what begins in it and ends in the next one, or the other way round."""
    further: dict[int, list[Span]] = {}
    for probe in walker.probes:
        text = walker.texts[probe.at]
        starts = [piece.start for piece in probe.pieces]
        for start, end, entity in _with_leftovers(text, found[probe.at]):
            parts = probe.pieces[bisect_right(starts, start) - 1 : bisect_left(starts, end)]
            if len(parts) < 2:
                continue
            # The first word of the next text seems to belong to an address that ends the one before.
            if entity == "URL" and any(held == "URL" for _, _, held in found[parts[0].place]):
                continue
            for piece in parts:
                shift = piece.offset - piece.start
                first, last = max(start, piece.start) + shift, min(end, piece.end) + shift
                further.setdefault(piece.place, []).append((first, last, entity))
    return [merge((*spans, *further[at])) if at in further else spans for at, spans in enumerate(found)]


def _with_leftovers(text: str, spans: list[Span]) -> list[Span]:
    left = [
        (first + start, first + end, entity)
        for first, last in gap_places(text, spans)
        for start, end, entity in leftovers(text[first:last])
    ]
    return [*spans, *left]


def _fill_in(plan: Plan, walker: Walker, found: list[list[Span]], mint: Mint) -> dict[str, Any]:
    if any(entity == PLACEHOLDER_SHAPE for spans in found for _, _, entity in spans):
        raise MaskingRefused("placeholder_shaped_input")
    spans = _over_borders(walker, found)
    if any(spans[at] or leftovers(walker.texts[at]) for at in walker.names):
        raise MaskingRefused("key_hit")
    masked: dict[int, str] = {}

    def fill(node: Leaf | Whole) -> str:
        if isinstance(node, Whole):
            return mint.placeholder(node.entity, node.text) if node.text else ""
        if node.at not in masked:
            masked[node.at] = mask_text(walker.texts[node.at], spans[node.at], mint)
        return masked[node.at]

    outward: dict[str, Any] = render(plan.tree, fill)
    if mint.counts():
        outward["messages"] = with_instruction(outward["messages"])
    return outward
