"""Whether plain data is a policy, and one that this deployment can carry out: every problem by its path."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from weighbridge.config.problems import dotted, explain
from weighbridge.config.yamlsource import MAX_BYTES
from weighbridge.policies.aliases import alias_problems
from weighbridge.policies.compiled import Policy
from weighbridge.policies.endpoint_names import endpoint_problems
from weighbridge.policies.schema import OVERLAID, Egress, Found, PolicyDocument

_INHERITANCE: Final = frozenset(
    {
        "<<",
        "base",
        "extend",
        "extends",
        "from",
        "import",
        "imports",
        "include",
        "includes",
        "inherit",
        "inherits",
    }
)
NO_INHERITANCE: Final = "a policy has no includes and no inheritance: all of it stands in this one file"


@dataclass(frozen=True, slots=True)
class Deployment:
    """What the settings say that a policy is held against."""

    adapters: Collection[str] | None = None
    """The adapters that an alias may stand for; None takes the policy's word for them."""
    endpoints: Collection[str] | None = None
    """The commercial endpoints; None or none at all: whatever the policy names."""
    max_egress: Egress = "masked"
    """The most that any policy may let out."""


ANY_DEPLOYMENT: Final = Deployment()


class NotAPolicy(Exception):
    """The data is refused.

    Args:
        found: every problem, as path and sentence; at least one.
    """

    def __init__(self, found: list[Found]) -> None:
        super().__init__("; ".join(f"{dotted(at)}: {why}" for at, why in found))
        self.found = found


def document_of(
    data: object, deployment: Deployment = ANY_DEPLOYMENT, *, overlaid: bool = False
) -> PolicyDocument:
    """The checked document.

    Args:
        overlaid: an admin's changes lie over it, see `schema.OVERLAID`.

    Raises:
        NotAPolicy: with every problem found.
    """
    try:
        document = PolicyDocument.model_validate(data, context=OVERLAID if overlaid else None)
    except ValidationError as exc:
        found = [_said(at, why) for at, why in explain(PolicyDocument, exc.errors())]
        raise NotAPolicy(found) from None
    if found := _beyond(document, deployment):
        raise NotAPolicy(found)
    return document


def keep_shut(egress: Egress, document: PolicyDocument, deployment: Deployment) -> None:
    """No admin opens what the settings keep shut: where they hold no commercial endpoint, `never` stays.

    Args:
        egress: what is in force now.

    Raises:
        NotAPolicy: the document would open it.
    """
    shut = deployment.endpoints is not None and not deployment.endpoints
    if shut and egress == "never" and document.egress != "never":
        raise NotAPolicy([(("egress",), "must stay never: the settings hold no commercial endpoint")])


def keep_small(policy: Policy) -> None:
    """What admins add stays within what a file may hold.

    Raises:
        NotAPolicy: the policy is larger.
    """
    if policy.size > MAX_BYTES:
        raise NotAPolicy([((), f"the policy would be larger than {MAX_BYTES} bytes")])


def _said(at: tuple[str | int, ...], why: str) -> Found:
    if why.startswith("unknown key") and at[-1] in _INHERITANCE:
        return at, NO_INHERITANCE
    if why.startswith("unknown key") and at[-1] == "true" and at[-2:-1] == ("escalation",):
        return at, "unknown key: a tool has read the key on as YAML 1.1 does; write it in quotes there"
    return at, why


def _beyond(document: PolicyDocument, deployment: Deployment) -> list[Found]:
    found: list[Found] = []
    if deployment.max_egress == "never" and document.egress != "never":
        found.append((("egress",), "must be never: policies.max_egress of the settings is never"))
    found += alias_problems(document.aliases, deployment.adapters)
    found += endpoint_problems(document.endpoints, deployment.endpoints or ())
    return found
