"""Other names for models: what a policy may say, and that a store knows the adapters they stand for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.policies.states import MemoryState
from weighbridge.config.problems import ConfigProblems
from weighbridge.policies.compiled import Policy, compile_policy
from weighbridge.policies.loader import check_policy, parse_policy
from weighbridge.policies.store import PolicyStore

HEAD = "version: 1\nname: p\negress: masked\n"


def policy(aliases: str) -> Policy:
    return compile_policy(parse_policy(f"{HEAD}aliases: {aliases}\n".encode(), "p.yaml").document)


def refused(aliases: str, adapters: tuple[str, ...] | None = None) -> list[str]:
    with pytest.raises(ConfigProblems) as caught:
        parse_policy(f"{HEAD}aliases:\n{aliases}".encode(), "p.yaml", adapters)
    return [str(problem) for problem in caught.value.problems]


def test_aliases_are_kept_as_they_are() -> None:
    long = "x" * 256
    made = policy(f"{{gpt-4o: auto, 'org/gpt-4o:mini': local-8b, {long}: commercial, tuned: legal-ko}}")
    assert dict(made.aliases) == {
        "gpt-4o": "auto",
        "org/gpt-4o:mini": "local-8b",
        long: "commercial",
        "tuned": "legal-ko",
    }
    assert compile_policy(parse_policy(HEAD.encode(), "p.yaml").document).aliases == {}


def test_they_are_part_of_the_version_and_their_order_is_not() -> None:
    assert policy("{a: auto, b: local-8b}").version == policy("{b: local-8b, a: auto}").version
    assert policy("{a: auto}").version != policy("{a: local-8b}").version


NAME = "this name must be text of 1 to 256 printable ASCII characters without spaces"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("  auto: local-8b\n", "p.yaml:5:3: aliases.auto: is a model's own name already"),
        ("  local-70b: local-8b\n", "p.yaml:5:3: aliases.local-70b: is a model's own name already"),
        ("  a: b\n  b: auto\n", "p.yaml:5:3: aliases.a: must not stand for another alias"),
        ("  a: a\n", "p.yaml:5:3: aliases.a: must not stand for another alias"),
        ("  gpt 4: auto\n", f"p.yaml:5:3: aliases.gpt 4: {NAME}"),
        ("  지피티: auto\n", f"p.yaml:5:3: aliases.지피티: {NAME}"),
        ('  "a\\n": auto\n', f"p.yaml:5:3: aliases.a\\n: {NAME}"),
        ("  a: [auto]\n", "p.yaml:5:3: aliases.a: must be text"),
        ("  a: 7\n", "p.yaml:5:3: aliases.a: must be text: put it in quotes"),
    ],
)
def test_what_is_no_alias_is_refused_with_its_line(line: str, problem: str) -> None:
    assert refused(line) == [problem]


def test_a_name_of_257_characters_is_refused() -> None:
    (problem,) = refused(f"  {'x' * 257}: auto\n")
    assert problem.endswith(NAME)


def test_targets_and_names_are_held_against_the_adapters() -> None:
    adapters = ("legal-ko",)
    assert refused("  a: legal-en\n", adapters) == [
        "p.yaml:5:3: aliases.a: must be one of auto, local-8b, local-70b, commercial, legal-ko"
    ]
    assert refused("  legal-ko: auto\n", adapters) == [
        "p.yaml:5:3: aliases.legal-ko: is an adapter's name already"
    ]
    parse_policy(f"{HEAD}aliases: {{a: legal-ko}}\n".encode(), "p.yaml", adapters)


def test_the_command_line_and_the_store_know_the_adapters(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(f"{HEAD}aliases: {{a: legal-ko}}\n")
    assert check_policy(file) == check_policy(file, ("legal-ko",)) == []
    assert len(check_policy(file, ())) == 1
    with pytest.raises(ConfigProblems):
        PolicyStore(file, MemoryState(), adapters=())
    store = PolicyStore(file, MemoryState(), adapters=("legal-ko",))
    file.write_text(f"{HEAD}aliases: {{a: legal-en}}\n")
    assert not store.reload_if_changed()
    assert dict(store.current.aliases) == {"a": "legal-ko"}
    assert "legal-en" not in str(store.problems[0])
    file.write_text(f"{HEAD}aliases: {{a: auto}}\n")
    assert store.reload_if_changed()
    assert dict(store.current.aliases) == {"a": "auto"}
