"""Changing the policy over the admin API: propose, look at the difference, apply, roll back."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from weighbridge.config.errors import ApiError, InvalidRequest
from weighbridge.config.problems import ConfigProblems, Problem, dotted
from weighbridge.config.shape import Step
from weighbridge.config.yamlsource import YamlFile, scan_yaml
from weighbridge.policies.checking import NotAPolicy, document_of, keep_shut, keep_small
from weighbridge.policies.compiled import Policy, compile_policy, content_of
from weighbridge.policies.difference import Change, difference, merged, patch_between
from weighbridge.policies.overlay import Overlay
from weighbridge.policies.schema import Found
from weighbridge.policies.store import Landing, PolicyStore, Standing, not_kept
from weighbridge.state.policy_record import (
    Form,
    Proposal,
    StoredProposal,
    StoredVersion,
    VersionEntry,
)
from weighbridge.state.store import StateUnavailable

MAX_PROBLEMS: Final = 100
"""Problems named in one refusal."""

_SOURCE: Final = "proposal"
"""What the problems call it."""

T = TypeVar("T")

log = logging.getLogger(__name__)


class PolicyRefused(InvalidRequest):
    """400: what was given makes no policy that may come into force here.

    Args:
        problems: what is wrong, the first of it; with line and column where it was given as YAML.
    """

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems[:MAX_PROBLEMS]
        first = self.problems[0]
        more = f" ({len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(
            f"This cannot come into force: {first}{more}.", code="invalid_policy", param=first.field or None
        )


@dataclass(frozen=True, slots=True)
class Seen:
    """A proposal as it stands to the policy in force."""

    stored: StoredProposal
    in_force: str
    """The version in force."""
    stale: bool
    """Another version has come into force since it was made; only a rebase can apply it."""
    changes: list[Change]
    """What applying it would change in the policy in force, on a rebase where it is stale."""


class PolicyChanges:
    """The changes that administrators make to the policy of `store`. Every call may block for disk and checking."""

    def __init__(self, store: PolicyStore) -> None:
        self._store = store
        self._record = store.record

    def propose(self, form: Form, given: str | Mapping[str, Any], who: str, why: str) -> Seen:
        """Check a change and keep it. Nothing comes into force.

        Args:
            form: `policy` for a whole document, `overlay` for a part of one, laid over the policy in force; null in it
                leaves the thing out.
            given: YAML, or plain data.
            who: id of the admin key.
            why: the reason.

        Raises:
            PolicyRefused: it makes no policy, or changes nothing.
            ApiError: 503 when it cannot be kept.
        """
        standing = self._store.standing
        source = _read(given) if isinstance(given, str) else None
        data = source.data if source is not None else given
        assert isinstance(data, Mapping)
        before = standing.policy.content()
        wanted = merged(before, data) if form == "overlay" else data
        try:
            document = document_of(wanted, self._store.deployment, overlaid=form == "overlay")
            keep_shut(standing.policy.egress, document, self._store.deployment)
        except NotAPolicy as exc:
            raise _refused(exc.found, source, whole=form == "policy") from None
        if source is not None and source.problems:
            raise PolicyRefused(list(source.problems))
        content = content_of(document)
        if content == before:
            raise PolicyRefused([Problem(_SOURCE, None, "", "it changes nothing that is in force")])
        patch = dict(data) if form == "overlay" else patch_between(before, content)
        policy = compile_policy(document)
        version = policy.version
        try:
            keep_small(policy)
        except NotAPolicy as exc:
            raise _refused(exc.found) from None
        try:
            number = self._record.propose(who, why, form, standing.policy.version, version, patch, content)
        except (StateUnavailable, ValueError) as exc:
            log.error("a proposal could not be kept: %s", type(exc).__name__)
            raise not_kept() from exc
        log.info("policy proposal %d for %s was kept", number, version)
        return self.proposal(number)

    def proposal(self, number: int) -> Seen:
        """A proposal, and what it would change now.

        Raises:
            ApiError: 404 where there is none; 503 when the state file cannot be read.
        """
        stored = self._stored(number)
        policy = self._store.current
        stale = policy.version != stored.entry.base_version
        content = policy.content()
        wanted = merged(content, stored.patch) if stale else stored.content
        return Seen(stored, policy.version, stale, difference(content, wanted))

    def proposals(self, after: int, limit: int) -> list[Proposal]:
        """Those above an id, in order. Raises: ApiError 503."""
        return _reading(lambda: self._record.proposals(after, limit))

    def apply(self, number: int, who: str, rebase: bool) -> Policy:
        """Bring a proposal into force.

        Args:
            rebase: lay it over whatever is in force now; else it is refused where that is not what it was made for.

        Raises:
            ApiError: 404 where there is none; 409 where it was applied before or, without `rebase`, another version has
                come into force since; 503 when it cannot be kept. Nothing has changed then.
            PolicyRefused: rebased, it makes no policy.
        """

        def make(standing: Standing) -> Landing:
            # Looked at again under the lock: two who apply it at once must not both succeed.
            stored = self._stored(number)
            if stored.entry.applied is not None:
                raise _conflict("already_applied", "This proposal has been applied before.")
            stale = standing.policy.version != stored.entry.base_version
            if stale and not rebase:
                raise _conflict(
                    "base_moved",
                    "Another version has come into force since this was proposed; look at the difference again and "
                    "apply it with rebase.",
                )
            content = standing.policy.content()
            wanted = merged(content, stored.patch) if stale else stored.content
            named = stored.patch if stored.entry.form == "overlay" else {}
            overlay = Overlay(merged(standing.overlay.values, named)).reaching(standing.base, wanted)
            return Landing(overlay, proposal=number)

        return self._land(make, who, self._stored(number).entry.why)

    def roll_back(self, named: int | str, who: str, why: str) -> Policy:
        """Bring an earlier version into force again, as it was.

        Args:
            named: the id of its entry, or the version's name.

        Raises:
            ApiError: 404 where there is none; 409 where it is in force; 503 when it cannot be kept.
            PolicyRefused: it is no policy for this deployment any more.
        """
        stored = self.version(named)

        def make(standing: Standing) -> Landing:
            if standing.policy.version == stored.entry.version:
                raise _conflict("in_force", "This version is in force.")
            # Without what was set on purpose since: what the version says is all that is wanted.
            overlay = Overlay().reaching(standing.base, stored.content)
            return Landing(overlay, back_to=stored.entry.id)

        return self._land(make, who, why)

    def version(self, named: int | str) -> StoredVersion:
        """One version, whole. Raises: ApiError 404 where there is none, 503."""
        return _there(_reading(lambda: self._record.version(named)), "version")

    def versions(self, after: int, limit: int) -> list[VersionEntry]:
        """Those above an id, in order. Raises: ApiError 503."""
        return _reading(lambda: self._record.versions(after, limit))

    def _land(self, make: Callable[[Standing], Landing], who: str, why: str) -> Policy:
        try:
            return self._store.land(make, who, why)
        except NotAPolicy as exc:
            raise _refused(exc.found) from None

    def _stored(self, number: int) -> StoredProposal:
        return _there(_reading(lambda: self._record.proposal(number)), "proposal")


def _read(text: str) -> YamlFile:
    try:
        # Half a character is no text; the reader says so.
        return scan_yaml(text.encode("utf-8", "surrogatepass"), _SOURCE)
    except ConfigProblems as exc:
        raise PolicyRefused(list(exc.problems)) from None


def _refused(found: list[Found], source: YamlFile | None = None, *, whole: bool = False) -> PolicyRefused:
    problems = list(source.problems) if source is not None else []
    problems += [_placed(at, why, source, whole) for at, why in found]
    return PolicyRefused(sorted(problems, key=lambda p: (p.line or 0, p.column or 0, p.field)))


def _placed(at: tuple[Step, ...], why: str, source: YamlFile | None, whole: bool) -> Problem:
    # A part of a policy may break what stands elsewhere: that has no line here.
    if source is None or not (whole or any(at[:n] in source.places for n in range(1, len(at) + 1))):
        return Problem(_SOURCE, None, dotted(at), why)
    return source.problem(at, why)


def _reading(read: Callable[[], T]) -> T:
    try:
        return read()
    except StateUnavailable as exc:
        raise ApiError(
            503,
            "The state file cannot be read at the moment.",
            type="server_error",
            code="state_unavailable",
            retry_after_s=5,
        ) from exc


def _there(found: T | None, what: str) -> T:
    if found is None:
        raise ApiError(
            404, f"There is no such {what}.", type="invalid_request_error", code=f"{what}_not_found"
        )
    return found


def _conflict(code: str, message: str) -> ApiError:
    return ApiError(409, message, type="invalid_request_error", code=code)
