"""The policy in force, and the two ways to change it: the file (watched by content) and the admin's overlay."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from weighbridge.config.errors import ApiError, InvalidRequest
from weighbridge.config.problems import ConfigProblems, Problem
from weighbridge.config.yamlsource import read_bytes
from weighbridge.policies.compiled import Policy, compile_policy
from weighbridge.policies.loader import PolicyFile, parse_policy
from weighbridge.policies.overlay import Overlay, OverlayConflict, ThresholdPatch, parse_patch
from weighbridge.state.store import OverlayEntry, StateUnavailable


class OverlayState(Protocol):
    """Where the overlay outlives the process; `state.store.StateStore` is it."""

    def overlay(self) -> Mapping[str, Any] | None:
        """The values in force; None when nothing is laid over. Raises StateUnavailable."""
        ...

    def set_overlay(
        self, values: Mapping[str, Any], who: str, why: str, *, base_policy_version: str = ""
    ) -> OverlayEntry:
        """Keep `values` durably before returning. Raises StateUnavailable or ValueError with nothing kept."""
        ...

    def history(self) -> list[OverlayEntry]:
        """Every change that was kept. Raises StateUnavailable."""
        ...


class Counter(Protocol):
    def inc(self) -> None: ...


class Info(Protocol):
    def set(self, value: str) -> None: ...


class PolicyMetrics(Protocol):
    """What the store tells the metrics; `observability.metrics.Metrics` is it."""

    @property
    def policy_reload_failures_total(self) -> Counter: ...
    @property
    def policy_info(self) -> Info: ...


@dataclass(frozen=True, slots=True)
class _InForce:
    """One consistent state of the store, swapped as a whole."""

    file: PolicyFile
    digest: bytes
    overlay: Overlay
    entry: OverlayEntry | None
    policy: Policy


@dataclass(frozen=True, slots=True)
class _Content:
    """What one look at the file found: its bytes, or why there are none."""

    raw: bytes | None
    problems: tuple[Problem, ...]

    @property
    def digest(self) -> bytes:
        said = self.raw if self.raw is not None else "\n".join(map(str, self.problems)).encode()
        return hashlib.sha256((b"1" if self.raw is not None else b"0") + said).digest()


class PolicyStore:
    """Holds the policy in force. `current` is replaced, never changed; what was read from it stays as it was.

    Args:
        source: the policy file.
        state: where the overlay is kept.
        metrics: counts refused reloads; None counts nothing.
        log: gets one line for every policy that comes into force and every problem of one that does not.
        adapters: the adapters that the settings have; None takes an alias's word for it.
        endpoints: the commercial endpoints that the settings have; None takes the policy's word for them.
        poll_interval_s: seconds between two looks at the file in `watch`.
        sleep: waits in `watch`.

    Raises:
        ConfigProblems: the file, or the file under the kept overlay, is no valid policy.
    """

    current: Policy
    problems: tuple[Problem, ...]
    """Why the file as it stands on disk is not in force; empty when it is."""

    def __init__(
        self,
        source: Path,
        state: OverlayState,
        metrics: PolicyMetrics | None = None,
        log: logging.Logger | None = None,
        *,
        adapters: Collection[str] | None = None,
        endpoints: Collection[str] | None = None,
        poll_interval_s: float = 1.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._source = source
        self._state = state
        self._adapters = adapters
        self._endpoints = endpoints
        self._metrics = metrics
        self._log = log or logging.getLogger(__name__)
        self._interval = poll_interval_s
        self._sleep = sleep
        self._lock = threading.Lock()
        self._refused: bytes | None = None
        content = _Content(read_bytes(source), ())
        self._seen = content.digest
        overlay, entry = self._kept()
        self.problems = ()
        self._put_in_force(self._parsed(content, overlay, entry))

    def reload_if_changed(self) -> bool:
        """Look at the file once and take it if its content is new; whether another policy came into force.

        An invalid file keeps the policy in force; it is logged and counted once for every content.
        """
        with self._lock:
            content = self._read()
            self._seen = content.digest
            return self._take(content)

    def poll(self) -> bool:
        """Like `reload_if_changed`, but a new content waits until two looks in a row have read the same.

        A file that is being written in place is so never taken half-written: its tenant rules stand at the end.
        """
        with self._lock:
            content = self._read()
            settled, self._seen = content.digest == self._seen, content.digest
            return settled and self._take(content)

    async def watch(self) -> None:
        """Poll for ever; reads in a thread. Content is compared, because Kubernetes swaps links under the file."""
        while True:
            await self._sleep(self._interval)
            try:
                await asyncio.to_thread(self.poll)
            except Exception as exc:  # a watch that ends would leave every later change unseen
                self._count_failure()
                self._log.error("looking at the policy file failed: %s", type(exc).__name__)

    def thresholds(self) -> dict[str, Any]:
        """What is in force, what the file says, and the admin change between the two, as plain data."""
        state = self._in_force
        document, entry, policy = state.file.document, state.entry, state.policy
        return {
            "policy": policy.version,
            "bounds": {"local_8b": policy.local_8b, "local_70b": policy.local_70b},
            "queue_lock_timeout_ms": policy.queue_lock_timeout_ms,
            "base": {
                "bounds": document.bounds.model_dump(),
                "queue_lock_timeout_ms": document.queue_lock_timeout_ms,
            },
            "overlay": None if entry is None or not state.overlay.values() else asdict(entry),
        }

    def patch_thresholds(self, patch: Mapping[str, Any], who: str, why: str | None = None) -> Policy:
        """Change thresholds for all requests from now on. Blocks while the change is written to disk.

        Args:
            patch: `bounds`, `queue_lock_timeout_ms` and `reason`; null takes the file's value again.
            who: id of the admin key.
            why: the reason, where it does not stand in `patch`.

        Raises:
            ApiError: 400 when the patch, or the policy under it, is invalid; 503 when it cannot be kept. Nothing
                has changed then.
        """
        if why is not None and isinstance(patch, Mapping):
            patch = {**patch, "reason": why}
        checked = parse_patch(patch)
        with self._lock:
            state = self._in_force
            overlay = state.overlay.patched(checked)
            try:
                policy = compile_policy(overlay.over(state.file.document))
            except OverlayConflict as exc:
                raise _conflict(exc, checked) from None
            base = compile_policy(state.file.document).version
            try:
                entry = self._state.set_overlay(
                    overlay.values(), who, checked.reason, base_policy_version=base
                )
            except (StateUnavailable, ValueError) as exc:
                self._log.error("a change of thresholds could not be kept: %s", type(exc).__name__)
                raise ApiError(
                    503,
                    "The change could not be kept on disk, so nothing was changed.",
                    type="server_error",
                    code="state_unavailable",
                ) from exc
            self._put_in_force(_InForce(state.file, state.digest, overlay, entry, policy))
            self._refused = None  # a file that did not go with the old overlay may go with this one
            return policy

    def _read(self) -> _Content:
        try:
            return _Content(read_bytes(self._source), ())
        except ConfigProblems as exc:
            return _Content(None, exc.problems)

    def _take(self, content: _Content) -> bool:
        state, digest = self._in_force, content.digest
        if digest == state.digest:
            self._refused, self.problems = None, ()
            return False
        if digest == self._refused:
            return False
        try:
            taken = self._parsed(content, state.overlay, state.entry)
        except ConfigProblems as exc:
            self._refused, self.problems = digest, exc.problems
            self._count_failure()
            for problem in exc.problems:
                self._log.error("policy not taken, %s stays in force: %s", self.current.version, problem)
            return False
        before = self.current.version
        self._refused, self.problems = None, ()
        self._put_in_force(taken)
        return self.current.version != before

    def _parsed(self, content: _Content, overlay: Overlay, entry: OverlayEntry | None) -> _InForce:
        if content.raw is None:
            raise ConfigProblems(content.problems)
        file = parse_policy(content.raw, str(self._source), self._adapters, self._endpoints)
        try:
            policy = compile_policy(overlay.over(file.document))
        except OverlayConflict as exc:
            raise ConfigProblems([file.source.problem(exc.field, exc.message)]) from None
        return _InForce(file, content.digest, overlay, entry, policy)

    def _put_in_force(self, state: _InForce) -> None:
        self._in_force = state
        self.current = state.policy
        if self._metrics is not None:
            self._metrics.policy_info.set(state.policy.version)
        self._log.info("policy %s is in force", state.policy.version)

    def _kept(self) -> tuple[Overlay, OverlayEntry | None]:
        try:
            overlay = Overlay.of(self._state.overlay())
            return overlay, max(self._state.history(), key=lambda entry: entry.id, default=None)
        except (StateUnavailable, ValueError) as exc:
            raise ConfigProblems([Problem("thresholds kept in state_dir", None, "", str(exc))]) from None

    def _count_failure(self) -> None:
        if self._metrics is not None:
            self._metrics.policy_reload_failures_total.inc()


def _conflict(conflict: OverlayConflict, patch: ThresholdPatch) -> InvalidRequest:
    low, high = conflict.bounds
    named = patch.bounds.model_fields_set if patch.bounds is not None else set()
    return InvalidRequest(
        f"bounds.local_8b ({low}) must not be above bounds.local_70b ({high}).",
        code="invalid_thresholds",
        param="bounds.local_70b" if named == {"local_70b"} else "bounds.local_8b",
    )
