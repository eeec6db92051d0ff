"""Bodies and answers of the admin API for policies, as OpenAPI tells them."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.config import JsonDict

from weighbridge.policies.changes import Seen
from weighbridge.policies.overlay import MAX_REASON
from weighbridge.state.policy_record import Proposal, StoredVersion, VersionEntry

Document = str | dict[str, Any]

_ONE_OF: JsonDict = {"oneOf": [{"required": ["policy"]}, {"required": ["overlay"]}]}


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class ProposalBody(_Body):
    """Body of a proposal: one of `policy` and `overlay`."""

    model_config = ConfigDict(
        extra="forbid", strict=True, hide_input_in_errors=True, json_schema_extra=_ONE_OF
    )

    policy: Document = Field(default="", description="A whole policy, as YAML or as a JSON object.")
    overlay: Document = Field(
        default="",
        description="A part of a policy, as YAML or as a JSON object, laid over the one in force. Null leaves the "
        "thing out; a list is replaced whole.",
    )
    reason: str = Field(
        min_length=1, max_length=MAX_REASON, description="Why, on one line, for those who read the history."
    )

    @model_validator(mode="after")
    def _one(self) -> ProposalBody:
        if len(self.model_fields_set & {"policy", "overlay"}) != 1:
            raise ValueError("one of policy and overlay")
        return self

    @property
    def form(self) -> Literal["policy", "overlay"]:
        return "policy" if "policy" in self.model_fields_set else "overlay"

    @property
    def given(self) -> Document:
        return self.policy if self.form == "policy" else self.overlay


class ApplyBody(_Body):
    """Body of applying a proposal; may be left out."""

    rebase: bool = Field(
        default=False,
        description="Lay it over whatever is in force now. Else it is refused where that has changed since.",
    )


class RollbackBody(_Body):
    """Body of a rollback."""

    reason: str = Field(
        min_length=1, max_length=MAX_REASON, description="Why, on one line, for those who read the history."
    )


class ChangeView(BaseModel):
    """One place that differs."""

    path: str = Field(description="JSON pointer into the policy.")
    before: Any = Field(description="What is in force; null where nothing is.")
    after: Any = Field(description="What would be; null where nothing would.")


class ProposalEntryView(BaseModel):
    """A proposal."""

    id: int
    at_ns: int = Field(description="When it was made: nanoseconds since 1970, UTC.")
    author: str = Field(description="Id of the admin key.")
    reason: str
    form: Literal["policy", "overlay"]
    base_version: str = Field(description="The version in force when it was made.")
    version: str = Field(description="The version that it makes of that one.")
    applied: int | None = Field(description="The entry of its coming into force, if it has.")


class ProposalView(ProposalEntryView):
    """A proposal beside the policy in force."""

    in_force: str = Field(description="The version in force.")
    stale: bool = Field(description="Another version came into force since: applying it takes `rebase`.")
    changes: list[ChangeView] = Field(description="What applying it would change.")


class ProposalsView(BaseModel):
    """A page of proposals."""

    proposals: list[ProposalEntryView]
    next_after: int | None = Field(description="`after` of the next page; null at the end.")


class VersionEntryView(BaseModel):
    """One coming into force of a policy."""

    id: int
    at_ns: int = Field(description="When: nanoseconds since 1970, UTC.")
    version: str
    source: Literal["file", "admin"]
    author: str | None = Field(description="Id of the admin key; null for the file.")
    reason: str | None = Field(description="Null for the file.")
    base_version: str = Field(description="The version of the file that it lies over.")
    proposal: int | None = Field(description="The proposal it comes from, if it does.")
    rolled_back_to: int | None = Field(description="The earlier entry that was rolled back to, if one was.")


class VersionView(VersionEntryView):
    """A version, whole."""

    overlay: dict[str, Any] = Field(description="What admins had laid over the file.")
    policy: dict[str, Any] = Field(description="All that was in force.")


class VersionsView(BaseModel):
    """A page of versions."""

    versions: list[VersionEntryView]
    in_force: str = Field(description="The version in force.")
    next_after: int | None = Field(description="`after` of the next page; null at the end.")


def proposal_entry(entry: Proposal) -> ProposalEntryView:
    return ProposalEntryView(
        id=entry.id,
        at_ns=entry.at_ns,
        author=entry.who,
        reason=entry.why,
        form=entry.form,
        base_version=entry.base_version,
        version=entry.version,
        applied=entry.applied,
    )


def proposal_view(seen: Seen) -> ProposalView:
    return ProposalView(
        **proposal_entry(seen.stored.entry).model_dump(),
        in_force=seen.in_force,
        stale=seen.stale,
        changes=[
            ChangeView(path=change.path, before=change.before, after=change.after) for change in seen.changes
        ],
    )


def version_entry(entry: VersionEntry) -> VersionEntryView:
    return VersionEntryView(
        id=entry.id,
        at_ns=entry.at_ns,
        version=entry.version,
        source=entry.source,
        author=entry.who or None,
        reason=entry.why or None,
        base_version=entry.base_version,
        proposal=entry.proposal,
        rolled_back_to=entry.back_to,
    )


def version_view(stored: StoredVersion) -> VersionView:
    return VersionView(
        **version_entry(stored.entry).model_dump(), overlay=stored.overlay, policy=stored.content
    )
