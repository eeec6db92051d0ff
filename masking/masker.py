"""From a request body to the only thing that may leave."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgspec

from weighbridge.config.clock import Clock
from weighbridge.config.deadline import Deadline
from weighbridge.config.errors import InvalidRequest
from weighbridge.config.folders import models_folder
from weighbridge.config.offload import MASKING, Lane, is_small
from weighbridge.config.settings import MaskingSettings
from weighbridge.masking import wire
from weighbridge.masking.body import Plan, plan_body
from weighbridge.masking.detector_nursery import DetectorNursery
from weighbridge.masking.detector_pool import Child, DetectorPool
from weighbridge.masking.detector_queue import Speculation
from weighbridge.masking.entities import Span, merge
from weighbridge.masking.errors import PASSING, MaskingRefused, Reason
from weighbridge.masking.filling import fill_in, tells
from weighbridge.masking.known_values import CHECK_S, KnownLists
from weighbridge.masking.layers.base import LayerOptions
from weighbridge.masking.masked_text import over_borders, shown, with_leftovers
from weighbridge.masking.request import MaskedRequest
from weighbridge.masking.rules import Blocked, Rules
from weighbridge.masking.seal import seal_request, verify
from weighbridge.masking.secret import Secrets
from weighbridge.masking.vault import Mint, derive_key
from weighbridge.masking.verdict import judge
from weighbridge.masking.walker import Walker

log = logging.getLogger(__name__)


_INLINE_NODES, _INLINE_CHARS = 500, 4_000
"""Values and characters of a request up to which its masked body is put together on the event loop."""

_SOON_S = 0.02
"""Seconds that a policy's patterns may take beside other masking. One that is slow on somebody's text goes on in a
thread of its own, where only others like it wait."""
_SLOW_PATTERNS: Final = Lane("patterns")

_SHIPPED = Rules()


@dataclass(frozen=True, slots=True)
class Look:
    """What would become of a text.

    Args:
        masked: the masked form; empty when the text is refused before anything was looked for.
        spans: what was found, in code points of the text, the reasons of a refusal included.
        refused: why it would not leave; None when it would.
    """

    masked: str
    spans: tuple[Span, ...]
    refused: Reason | None


StartChild = Callable[[], Coroutine[Any, Any, Child]]
"""Starts one detector process; raises ChildLost."""


def setup_of(settings: MaskingSettings) -> wire.Setup:
    """What the detectors are told."""
    return wire.Setup(
        tuple(settings.layers),
        LayerOptions(
            score_threshold=settings.score_threshold,
            models_dir=str(settings.models_dir or models_folder()),
            local_model="" if settings.local_model is None else str(settings.local_model),
        ),
    )


class Masker:
    """Masks requests with a pool of detector processes.

    Args:
        settings: `masking` section.
        clock: as everywhere.
        start_child: starts one detector process; None: from a nursery of this masker's own.
        secrets: what keys derive from; None takes the settings', or a random one that ends with this process.
    """

    def __init__(
        self,
        settings: MaskingSettings,
        clock: Clock,
        *,
        start_child: StartChild | None = None,
        secrets: Secrets | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        if secrets is None:
            secrets = Secrets.random() if settings.secret is None else Secrets.of(settings.secret)
        self._secret = secrets.current
        self._nursery = DetectorNursery(setup_of(settings))
        self._known = KnownLists(settings.known_values, clock)
        self._following: asyncio.Task[None] | None = None
        self._told: wire.Ready | None = None
        self._closed = False
        self._pool = DetectorPool(
            start_child or self._nursery.start_child,
            workers=settings.workers,
            max_queue=settings.max_queue,
            task_timeout_s=settings.task_timeout_s,
        )

    @property
    def ready(self) -> bool:
        """Whether a detector process is up."""
        return self._pool.ready

    async def start(self) -> None:
        """Start the detector processes, and keep trying where that fails. Returns after the first try; does nothing
        when closed. Never raises; see `ready`."""
        await self._bring_up(on_demand=False)

    @property
    def names(self) -> frozenset[str]:
        """Languages in whose prose names are found here."""
        return self._pool.about.names

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers that look."""
        return self._pool.about.layers

    def about_lines(self) -> list[str]:
        """Which layers look, which are missing, and what does not leave for that; for a log."""
        about = self._pool.about
        lines = [f"layers {', '.join(about.layers)}"]
        lines += [f"layer {name} is missing: {why}" for name, why in about.missing.items()]
        blind = [word for code, word in (("ko", "Korean"), ("en", "English")) if code not in about.names]
        if blind and self._settings.without_names == "refuse":
            lines.append(f"no layer finds names in {' or '.join(blind)} prose, so such prose does not leave")
        elif blind:
            lines.append(
                f"no layer finds names in {' or '.join(blind)} prose; it leaves with them (without_names: mask)"
            )
        return lines

    async def close(self) -> None:
        """End the detector processes, also those that are starting. Idempotent."""
        self._closed = True
        if self._following is not None:
            self._following.cancel()
            self._following = None
        await self._pool.close()
        await self._nursery.close()

    async def mask(
        self,
        body: dict[str, Any],
        *,
        request_id: str,
        upstream_model: str,
        conversation: str,
        deadline: Deadline,
        rules: Rules = _SHIPPED,
        tenant: str = "",
        speculation: Speculation | None = None,
    ) -> MaskedRequest:
        """Build the masked request.

        Args:
            body: the decoded chat-completions body; not changed.
            request_id: the id made at admission.
            upstream_model: model name for the commercial API.
            conversation: whose placeholders these are, tenant included: the same value has the same placeholder in
                requests of one conversation and unrelated ones in others.
            deadline: the request's; `masking.task_timeout_s` shortens it.
            rules: the policy's.
            tenant: whose known values are looked for.
            speculation: given while the mask may not be needed: then it is made only when the detectors have
                nothing else to do, until it is promoted.

        Raises:
            MaskingRefused: it must not leave.
            InvalidRequest: a known field has a wrong type.
        """
        with _told_by_class():
            return await self._mask(
                body, request_id, upstream_model, conversation, deadline, rules, tenant, speculation
            )

    def addressed(self, masked: MaskedRequest, model: str) -> MaskedRequest:
        """The same masked request for another model name, sealed anew.

        Raises:
            ValueError: its seal is broken.
        """
        if not verify(masked):
            raise ValueError("the seal of a masked request does not fit its content")
        fields = msgspec.json.decode(masked.body, type=dict[str, msgspec.Raw])
        fields["model"] = msgspec.Raw(msgspec.json.encode(model))
        body = msgspec.json.encode(fields)
        return seal_request(
            request_id=masked.request_id,
            body=body,
            stream=masked.stream,
            entities=masked.entities,
            detector_version=masked.detector_version,
            body_hash=keyed_hash(self._secret, body),
            vault=masked.vault,
        )

    def lists(self, tenant: str) -> object:
        """What the tenant's known values are at this moment; a mask made under other ones is out of date."""
        return self._known.edition(tenant)

    async def look(
        self, text: str, *, deadline: Deadline, rules: Rules = _SHIPPED, tenant: str = "", conversation: str
    ) -> Look:
        """What would become of `text` as one message, for an operator to see. Nothing is sealed.

        Starts the detector processes where `start` was not called. All callers share that, and it goes on without
        one that is cancelled or late; after a failure the next caller tries again.

        Raises:
            MaskingRefused: the detectors failed, were late or are busy. What the text itself is refused for stands
                in the result.
        """
        with _told_by_class():
            try:
                async with asyncio.timeout(deadline.remaining()):
                    await self._bring_up(on_demand=True)
            except TimeoutError:
                raise MaskingRefused("timeout") from None
            walker = Walker(self._most_chars(rules))
            try:
                walker.plain(text)
                found = await self._found(walker, deadline, rules, tenant, conversation)
            except MaskingRefused as refusal:
                if refusal.reason in PASSING:
                    raise
                return Look("", (), refusal.reason)
            looking = partial(self._looked, walker, found, rules, conversation)
            return await MASKING.run(looking) if len(text) > _INLINE_CHARS else looking()

    async def _bring_up(self, *, on_demand: bool) -> None:
        if self._closed:
            return
        if self._settings.known_values and self._following is None:
            self._following = asyncio.create_task(self._follow_lists(), name="known-values")
        await self._pool.start(on_demand=on_demand)
        if self.ready and self._told != self._pool.about:
            self._told = self._pool.about
            layers, *gaps = self.about_lines()
            log.info("masking: %s", layers)
            for line in gaps:
                log.warning("masking: %s", line)

    async def _follow_lists(self) -> None:
        while True:
            try:
                await MASKING.run(self._known.look)
            except Exception as exc:  # the next look may work
                log.error("known values: a look at the files failed with %s", type(exc).__name__)
            await asyncio.sleep(CHECK_S)

    def _looked(self, walker: Walker, found: list[list[Span]], rules: Rules, conversation: str) -> Look:
        (text,) = walker.texts
        spans = with_leftovers(text, found[0])
        mint = Mint(derive_key(self._secret, "placeholders", conversation))
        return Look(shown(text, spans, mint), tuple(spans), self._judged(walker, found, rules))

    def _most_chars(self, rules: Rules) -> int:
        return min(self._settings.max_chars, rules.max_chars or self._settings.max_chars)

    async def _mask(
        self,
        body: dict[str, Any],
        request_id: str,
        upstream_model: str,
        conversation: str,
        deadline: Deadline,
        rules: Rules,
        tenant: str,
        speculation: Speculation | None,
    ) -> MaskedRequest:
        # Long requests take tens of milliseconds before and after the detectors, which other streams would feel.
        long = not is_small(body, nodes=_INLINE_NODES, chars=_INLINE_CHARS)
        planning = partial(
            _plan,
            body,
            self._most_chars(rules),
            upstream_model,
            derive_key(self._secret, "ids", conversation),
        )
        walker, plan = await MASKING.run(planning) if long else planning()
        found = await self._found(walker, deadline, rules, tenant, conversation, speculation)
        mint = Mint(derive_key(self._secret, "placeholders", conversation))
        sealing = partial(self._seal, request_id, plan, walker, found, mint, rules)
        return await MASKING.run(sealing) if long else sealing()

    async def _found(
        self,
        walker: Walker,
        deadline: Deadline,
        rules: Rules,
        tenant: str,
        conversation: str,
        speculation: Speculation | None = None,
    ) -> list[list[Span]]:
        """The merged spans of every text: what the tenant's list knows and what the detectors find."""
        if rules.blocked is not None and await self._is_blocked(rules.blocked, walker.texts, deadline):
            raise MaskingRefused("blocked_term")
        reading = partial(self._read, walker, tenant)
        long = sum(map(len, walker.texts)) > _INLINE_CHARS
        known = await MASKING.run(reading) if long else reading()
        found = await self._pool.find(
            walker.texts, deadline, tenant=tenant, owner=conversation, speculation=speculation
        )
        return [
            merge((*ours, *theirs)) if ours else theirs for ours, theirs in zip(known, found, strict=True)
        ]

    async def _is_blocked(self, blocked: Blocked, texts: list[str], deadline: Deadline) -> bool:
        with suppress(TimeoutError):
            return await MASKING.run(blocked.found, texts, within_s=_SOON_S)
        try:
            async with asyncio.timeout(min(self._settings.task_timeout_s, deadline.remaining())):
                return await _SLOW_PATTERNS.run(blocked.found, texts)
        except TimeoutError:
            raise MaskingRefused("timeout") from None

    def _read(self, walker: Walker, tenant: str) -> list[list[Span]]:
        known = self._known.find(tenant, walker.texts)
        # A list does not guess, whatever type it gives a value: see `filling.tells` for what the name layers do.
        if any(known[at] for at in walker.names):
            raise MaskingRefused("key_hit")
        return known

    def _judged(self, walker: Walker, found: list[list[Span]], rules: Rules) -> Reason | None:
        blind = self._settings.without_names == "refuse"
        return judge(walker.texts, found, rules, self.names if blind else None)

    def _seal(
        self,
        request_id: str,
        plan: Plan,
        walker: Walker,
        found: list[list[Span]],
        mint: Mint,
        rules: Rules,
    ) -> MaskedRequest:
        spans = over_borders(walker, found)
        if (refused := self._judged(walker, spans, rules)) is not None:
            raise MaskingRefused(refused)
        if any(tells(walker.texts[at], spans[at]) for at in walker.names):
            raise MaskingRefused("key_hit")
        final = msgspec.json.encode(fill_in(plan, walker, spans, mint))
        return seal_request(
            request_id=request_id,
            body=final,
            stream=plan.stream,
            entities=mint.counts(),
            detector_version=self._pool.about.detector_version,
            body_hash=keyed_hash(self._secret, final),
            vault=mint.vault(plan.json_answer),
        )


@contextmanager
def _told_by_class() -> Iterator[None]:
    """An unexpected exception may hold text: only its class is told, and the request is refused."""
    try:
        yield
    except (MaskingRefused, InvalidRequest):
        raise
    except Exception as exc:
        log.error("masking failed with %s", type(exc).__name__)
        raise MaskingRefused("internal") from None


def _plan(body: dict[str, Any], max_chars: int, upstream_model: str, id_key: bytes) -> tuple[Walker, Plan]:
    walker = Walker(max_chars)
    return walker, plan_body(body, walker, upstream_model, id_key)


def keyed_hash(secret: bytes, body: bytes) -> str:
    """What the egress record keeps of the bytes: nobody without the secret can test a guess against it."""
    return hmac.digest(derive_key(secret, "egress record"), body, hashlib.sha256).hex()
