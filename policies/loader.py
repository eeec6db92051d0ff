"""From a policy file to a policy, with every problem named by file, line and field."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from weighbridge.config.problems import ConfigProblems, Problem, explain
from weighbridge.config.sections import PolicySettings
from weighbridge.config.yamlsource import YamlFile, parse_yaml, read_bytes
from weighbridge.policies.aliases import alias_problems
from weighbridge.policies.compiled import Policy, compile_policy
from weighbridge.policies.endpoint_names import endpoint_problems
from weighbridge.policies.schema import PolicyDocument

SHIPPED: Final[tuple[str, ...]] = ("default", "on-prem-only")
"""The policies that come with the product."""


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """A checked policy file and where its lines are."""

    document: PolicyDocument
    source: YamlFile


def parse_policy(
    raw: bytes,
    name: str,
    adapters: Collection[str] | None = None,
    endpoints: Collection[str] | None = None,
) -> PolicyFile:
    """Parse and check a policy file's content; `name` is what the problems call it.

    Args:
        adapters: the adapters that the settings have, for which aliases may stand; None where they are not known.
        endpoints: the commercial endpoints that the settings have; None or none at all: whatever the policy names.

    Raises:
        ConfigProblems: every problem found, one line each.
    """
    source = parse_yaml(raw, name)
    try:
        document = PolicyDocument.model_validate(source.data)
    except ValidationError as exc:
        problems = [source.problem(at, why) for at, why in explain(PolicyDocument, exc.errors())]
        raise ConfigProblems(sorted(problems, key=lambda p: (p.line or 0, p.field))) from None
    unknown = endpoint_problems(document.endpoints, endpoints or ())
    if astray := [
        source.problem(at, why) for at, why in (*alias_problems(document.aliases, adapters), *unknown)
    ]:
        raise ConfigProblems(astray)
    return PolicyFile(document, source)


def load_policy(
    path: Path, adapters: Collection[str] | None = None, endpoints: Collection[str] | None = None
) -> Policy:
    """The policy in a file, without any admin overlay; `adapters` and `endpoints` as in `parse_policy`.

    Raises:
        ConfigProblems: every problem found, one line each.
    """
    return compile_policy(parse_policy(read_bytes(path), str(path), adapters, endpoints).document)


def check_policy(
    path: Path, adapters: Collection[str] | None = None, endpoints: Collection[str] | None = None
) -> list[Problem]:
    """What is wrong with a policy file; empty when it can come into force. The rest as in `parse_policy`."""
    try:
        load_policy(path, adapters, endpoints)
    except ConfigProblems as exc:
        return list(exc.problems)
    return []


def shipped_path(name: str) -> Path:
    """The file of a shipped policy.

    Raises:
        KeyError: no such policy is shipped.
    """
    if name not in SHIPPED:
        raise KeyError(name)
    return Path(__file__).with_name(f"{name}.yaml")


def shipped(name: str) -> Policy:
    """A shipped policy by name.

    Raises:
        KeyError: no such policy is shipped.
    """
    return load_policy(shipped_path(name))


def policy_path(settings: PolicySettings) -> Path:
    """The file the settings choose."""
    return shipped_path(settings.name) if settings.file is None else settings.file
