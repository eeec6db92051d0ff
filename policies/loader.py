"""From a policy file to a policy, with every problem named by file, line, column and field."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from weighbridge.config.problems import ConfigProblems, Problem
from weighbridge.config.sections import PolicySettings
from weighbridge.config.shape import Step
from weighbridge.config.yamlsource import YamlFile, read_bytes, scan_yaml
from weighbridge.policies.checking import Deployment, NotAPolicy, document_of
from weighbridge.policies.compiled import Policy, compile_policy
from weighbridge.policies.schema import Egress, PolicyDocument

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
    max_egress: Egress = "masked",
) -> PolicyFile:
    """Parse and check a policy file's content; `name` is what the problems call it.

    Args:
        adapters, endpoints, max_egress: what the settings say, see `Deployment`.

    Raises:
        ConfigProblems: every problem found, one line each, in the order of the file.
    """
    source = scan_yaml(raw, name)
    deployment = Deployment(adapters, endpoints, max_egress)
    problems = list(source.problems)
    try:
        document = document_of(source.data, deployment)
    except NotAPolicy as exc:
        problems += [source.problem(at, why) for at, why in exc.found if not _unread(source, at)]
    if problems:
        raise ConfigProblems(sorted(problems, key=lambda p: (p.line or 0, p.column or 0, p.field)))
    return PolicyFile(document, source)


def _unread(source: YamlFile, at: tuple[Step, ...]) -> bool:
    """Whether what stands at `at` could not be read, so that nothing can be said of it."""
    return any(at[: len(path)] == path for path in source.unread)


def load_policy(
    path: Path,
    adapters: Collection[str] | None = None,
    endpoints: Collection[str] | None = None,
    max_egress: Egress = "masked",
) -> Policy:
    """The policy in a file, without any admin overlay; the rest as in `parse_policy`.

    Raises:
        ConfigProblems: every problem found, one line each.
    """
    file = parse_policy(read_bytes(path), str(path), adapters, endpoints, max_egress)
    return compile_policy(file.document)


def check_policy(
    path: Path,
    adapters: Collection[str] | None = None,
    endpoints: Collection[str] | None = None,
    max_egress: Egress = "masked",
) -> list[Problem]:
    """What is wrong with a policy file; empty when it can come into force. The rest as in `parse_policy`."""
    try:
        load_policy(path, adapters, endpoints, max_egress)
    except ConfigProblems as exc:
        return list(exc.problems)
    return []


def example_paths() -> list[Path]:
    """The example policies that come with the product, to be copied and changed."""
    return sorted(Path(__file__).parent.joinpath("examples").glob("*.yaml"))


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
