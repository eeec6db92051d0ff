"""The policy in force, and the two ways to change it: the file (watched by content) and the admin's overlay."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from weighbridge.config.errors import ApiError, InvalidRequest
from weighbridge.config.problems import ConfigProblems, Problem
from weighbridge.config.yamlsource import read_bytes
from weighbridge.policies.checking import Deployment, NotAPolicy, document_of, keep_shut, keep_small
from weighbridge.policies.compiled import Policy, compile_policy, content_of
from weighbridge.policies.loader import parse_policy
from weighbridge.policies.overlay import Overlay, OverlayConflict, ThresholdPatch, parse_patch
from weighbridge.policies.schema import Egress, PolicyDocument
from weighbridge.state.policy_record import NewVersion, PolicyRecord, StoredVersion
from weighbridge.state.store import OverlayEntry, StateStore, StateUnavailable


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
class Standing:
    """One consistent state of the store, swapped as a whole."""

    base: PolicyDocument
    """What the file says, or said when it was last in force."""
    digest: bytes
    overlay: Overlay
    entry: OverlayEntry | None
    """The last change by an admin."""
    policy: Policy


FileState = Literal["in_force", "refused", "conflict"]
"""How the policy file as it stands on disk stands to what is in force. refused: it is no valid policy. conflict: it is
one, but not with the admin's changes on it."""


@dataclass(frozen=True, slots=True)
class _Content:
    """What one look at the file found: its bytes, or why there are none."""

    raw: bytes | None
    problems: tuple[Problem, ...]

    @property
    def digest(self) -> bytes:
        said = self.raw if self.raw is not None else "\n".join(map(str, self.problems)).encode()
        return hashlib.sha256((b"1" if self.raw is not None else b"0") + said).digest()


@dataclass(frozen=True, slots=True)
class Landing:
    """An admin's change: what is to lie over the file from then on, and where the change comes from."""

    overlay: Overlay
    proposal: int | None = None
    back_to: int | None = None


class _Conflict(ConfigProblems):
    """The file is a policy, but not with the overlay on it."""


_BESIDE = " (with an admin's changes over this file)"
_TAKEN_OFF = ", and no version is kept that could go on; `weighbridge overlay drop` takes the changes off"
_SHUT = "the policy file lets nothing leave"


class PolicyStore:
    """Holds the policy in force. `current` is replaced, never changed; what was read from it stays as it was.

    Args:
        source: the policy file.
        state: where the overlay, the proposals and the versions are kept.
        metrics: counts refused reloads; None counts nothing.
        log: gets one line for every policy that comes into force and every problem of one that does not.
        adapters: the adapters that the settings have; None takes an alias's word for it.
        endpoints: the commercial endpoints that the settings have; None takes the policy's word for them.
        max_egress: the most that any policy may let out.
        poll_interval_s: seconds between two looks at the file in `watch`.
        sleep: waits in `watch`.

    Raises:
        ConfigProblems: the file is no valid policy; or it is none under the kept overlay, and no earlier version is
            kept that could go on.
    """

    current: Policy
    problems: tuple[Problem, ...]
    """Why the file as it stands on disk is not in force; empty when it is."""
    file_state: FileState
    _in_force: Standing

    def __init__(
        self,
        source: Path,
        state: StateStore,
        metrics: PolicyMetrics | None = None,
        log: logging.Logger | None = None,
        *,
        adapters: Collection[str] | None = None,
        endpoints: Collection[str] | None = None,
        max_egress: Egress = "masked",
        poll_interval_s: float = 1.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._source = source
        self._state = state
        self.record = PolicyRecord(state)
        self.deployment = Deployment(adapters, endpoints, max_egress)
        self._metrics = metrics
        self._log = log or logging.getLogger(__name__)
        self._interval = poll_interval_s
        self._sleep = sleep
        self._lock = threading.Lock()
        self._refused: bytes | None = None
        self._unkept: str | None = None
        content = _Content(read_bytes(source), ())
        self._seen = content.digest
        overlay, entry, last = self._kept()
        self._kept_overlay = overlay
        self._recorded = None if last is None else last.entry.version
        self.problems, self.file_state = (), "in_force"
        try:
            standing = self._parsed(content, overlay, entry, None if last is None else last.base["egress"])
        except _Conflict as exc:
            standing = self._gone_on(exc, content, overlay, entry, last)
        self._put_in_force(standing)
        self._record_file()

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
            self._record_file()
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
        document, entry, policy = state.base, state.entry, state.policy
        return {
            "policy": policy.version,
            "bounds": {"local_8b": policy.local_8b, "local_70b": policy.local_70b},
            "queue_lock_timeout_ms": policy.queue_lock_timeout_ms,
            "base": {
                "bounds": document.bounds.model_dump(),
                "queue_lock_timeout_ms": document.queue_lock_timeout_ms,
            },
            "overlay": None if entry is None or not state.overlay.values else asdict(entry),
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
        try:
            return self.land(lambda state: Landing(state.overlay.patched(checked)), who, checked.reason)
        except NotAPolicy as exc:
            raise _conflict(exc, checked) from None

    def trial(self, patch: Mapping[str, Any]) -> Policy:
        """The policy as it would be with the thresholds of `patch`, checked like a change of them. Nothing changes.

        Raises:
            ApiError: 400 as `patch_thresholds`.
        """
        checked = parse_patch(patch)
        state = self._in_force
        try:
            document = state.overlay.patched(checked).over(state.base, self.deployment)
            keep_shut(state.policy.egress, document, self.deployment)
        except NotAPolicy as exc:
            raise _conflict(exc, checked) from None
        return compile_policy(document)

    @property
    def standing(self) -> Standing:
        """What is in force, in its parts."""
        return self._in_force

    def land(self, make: Callable[[Standing], Landing], who: str, why: str) -> Policy:
        """Bring an admin's change into force: checked whole, then kept, then in force. Blocks for the disk.

        Args:
            make: says what is to be laid over the file, given what is in force; what it raises changes nothing.
            who: id of the admin key.
            why: the reason.

        Raises:
            NotAPolicy: it makes none that this deployment can carry out. Nothing has changed then.
            ApiError: 503 when it cannot be kept. Nothing has changed then.
        """
        with self._lock:
            state = self._in_force
            landing = make(state)
            document = landing.overlay.over(state.base, self.deployment)
            keep_shut(state.policy.egress, document, self.deployment)
            policy = compile_policy(document)
            keep_small(policy)
            new = _new(state.base, landing.overlay, policy, landing.proposal, landing.back_to)
            try:
                entry = self.record.from_admin(new, who, why)
            except (StateUnavailable, ValueError) as exc:
                self._log.error("a change of the policy could not be kept: %s", type(exc).__name__)
                raise not_kept() from exc
            self._recorded, self._kept_overlay = policy.version, landing.overlay
            self._put_in_force(Standing(state.base, state.digest, landing.overlay, entry, policy))
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
            self._refused, self.problems, self.file_state = None, (), "in_force"
            return False
        if digest == self._refused:
            return False
        try:
            taken = self._parsed(content, state.overlay, state.entry, state.base.egress)
        except ConfigProblems as exc:
            self._not_taken(digest, exc)
            return False
        before = self.current.version
        self._refused, self.problems, self.file_state = None, (), "in_force"
        self._put_in_force(taken)
        self._record_file()
        return self.current.version != before

    def _not_taken(self, digest: bytes, refusal: ConfigProblems) -> None:
        self._refused, self.problems = digest, refusal.problems
        self.file_state = "conflict" if isinstance(refusal, _Conflict) else "refused"
        self._count_failure()
        for problem in refusal.problems:
            self._log.error("policy not taken, %s stays in force: %s", self.current.version, problem)

    def _parsed(
        self, content: _Content, overlay: Overlay, entry: OverlayEntry | None, before: Egress | None
    ) -> Standing:
        """Args: before: the `egress` of the file that the overlay was on last."""
        if content.raw is None:
            raise ConfigProblems(content.problems)
        file = parse_policy(
            content.raw,
            str(self._source),
            self.deployment.adapters,
            self.deployment.endpoints,
            self.deployment.max_egress,
        )
        if file.document.egress == "never" and before != "never" and overlay.opens:
            # Whoever shuts the file means it. An admin who wants it open after that says so again.
            self._log.error("%s: an admin's `egress` over it is taken off", _SHUT)
            overlay = overlay.without("egress")
        try:
            document = overlay.over(file.document, self.deployment)
        except OverlayConflict as exc:
            raise _Conflict(file.source.problem(at, f"{why}{_BESIDE}") for at, why in exc.found) from None
        return Standing(file.document, content.digest, overlay, entry, compile_policy(document))

    def _gone_on(
        self,
        conflict: _Conflict,
        content: _Content,
        overlay: Overlay,
        entry: OverlayEntry | None,
        last: StoredVersion | None,
    ) -> Standing:
        """What was in force before a restart goes on where the file has changed and no longer bears the overlay."""
        if last is None:
            raise _lasting(conflict)
        try:
            base = document_of(last.base, self.deployment)
            self.current = compile_policy(Overlay(last.overlay).over(base, self.deployment))
        except NotAPolicy:
            raise _lasting(conflict) from None
        self._not_taken(content.digest, conflict)
        return Standing(base, b"", overlay, entry, self.current)

    def _record_file(self) -> None:
        """Keep the version that the file has brought, if it is not kept yet. It is in force whatever the disk does."""
        state = self._in_force
        shut = state.overlay.values != self._kept_overlay.values
        if not shut and self._recorded == state.policy.version:
            return
        new = _new(state.base, state.overlay, state.policy)
        try:
            if shut:
                entry = self.record.from_admin(new, "", _SHUT)
                self._in_force = replace(state, entry=entry)
            else:
                self.record.from_file(new)
        except (StateUnavailable, ValueError) as exc:
            if self._unkept != state.policy.version:  # it is tried again at every look at the file
                self._log.error("policy %s could not be kept: %s", state.policy.version, type(exc).__name__)
            self._unkept = state.policy.version
        else:
            self._recorded, self._kept_overlay = state.policy.version, state.overlay

    def _put_in_force(self, state: Standing) -> None:
        self._in_force = state
        self.current = state.policy
        if self._metrics is not None:
            self._metrics.policy_info.set(state.policy.version)
        self._log.info("policy %s is in force", state.policy.version)

    def _kept(self) -> tuple[Overlay, OverlayEntry | None, StoredVersion | None]:
        try:
            entry = self._state.last_change()
            return Overlay(self._state.overlay() or {}), entry, self.record.last()
        except (StateUnavailable, ValueError) as exc:
            raise ConfigProblems([Problem("changes kept in state_dir", None, "", str(exc))]) from None

    def _count_failure(self) -> None:
        if self._metrics is not None:
            self._metrics.policy_reload_failures_total.inc()


def _lasting(conflict: _Conflict) -> ConfigProblems:
    return ConfigProblems([replace(one, message=one.message + _TAKEN_OFF) for one in conflict.problems])


def not_kept() -> ApiError:
    """503: the disk did not take the change."""
    return ApiError(
        503,
        "The change could not be kept on disk, so nothing was changed.",
        type="server_error",
        code="state_unavailable",
    )


def _new(
    base: PolicyDocument,
    overlay: Overlay,
    policy: Policy,
    proposal: int | None = None,
    back_to: int | None = None,
) -> NewVersion:
    return NewVersion(
        policy.version,
        compile_policy(base).version,
        content_of(base),
        overlay.values,
        policy.content(),
        proposal,
        back_to,
    )


def _conflict(conflict: NotAPolicy, patch: ThresholdPatch) -> InvalidRequest:
    named = patch.bounds.model_fields_set if patch.bounds is not None else set()
    return InvalidRequest(
        f"{conflict}.",
        code="invalid_thresholds",
        param="bounds.local_70b" if named == {"local_70b"} else "bounds.local_8b",
    )
