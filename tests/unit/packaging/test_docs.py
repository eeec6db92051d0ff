"""What the pages promise exists: links, make targets, commands, settings, the first policy, the first answer."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from weighbridge.config.envsource import CONFIG_VARIABLE, read_env
from weighbridge.config.settings import Settings
from weighbridge.gateway.body import MAX_DEPTH, MAX_NODES
from weighbridge.gateway.cli import main
from weighbridge.policies.loader import check_policy, shipped
from weighbridge.router.answer import weighbridge_headers
from weighbridge.router.decision import Facts, decide
from weighbridge.router.difficulty.score import assess

ROOT = Path(__file__).parents[3]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", FENCE.sub("", page.read_text())):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


@every_page
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    code = " ".join(re.findall(r"`([^`]+)`", page.read_text())) + " ".join(
        body for _, body in FENCE.findall(page.read_text())
    )
    assert set(re.findall(r"\bmake ([a-z-]+)", code)) <= targets


# The reference pages are generated from the settings themselves.
@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.parent.name != "reference"], ids=lambda page: page.name
)
def test_variables_name_settings(page: Path) -> None:
    for name in set(re.findall(r"WEIGHBRIDGE_[A-Z0-9_]*[A-Z0-9]", page.read_text())) - {CONFIG_VARIABLE}:
        problems = [problem.message for problem in read_env(Settings, {name: "{}"}).problems]
        assert not any("no setting has this name" in message for message in problems), name


@every_page
def test_flags_are_known_to_the_command(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = ""
    for command in (["serve"], ["check"], ["key", "new"]):
        with pytest.raises(SystemExit):
            main([*command, "--help"])
        known += capsys.readouterr().out
    for line in re.findall(r"weighbridge (?:serve|check|key).*|ARGS=\"[^\".]*\"", page.read_text()):
        flags = set(re.findall(r"(?<![\w-])--[a-z0-9-]+", line)) - {"--upgrade", "--help"}
        assert flags <= set(re.findall(r"--[a-z0-9-]+", known)), line


def without_comments(code: str) -> str:
    return re.sub(r"[ \t]+#.*$", "", code, flags=re.MULTILINE)


def test_the_two_readmes_show_the_same_code() -> None:
    english, korean = (
        [
            (kind, without_comments(code))
            for kind, code in FENCE.findall((ROOT / name).read_text())
            if kind != "mermaid"
        ]
        for name in ("README.md", "README.ko.md")
    )
    assert english == korean
    assert len(english) >= 6


@pytest.mark.parametrize("name", ["README.md", "README.ko.md"])
def test_the_first_answer_is_the_one_that_comes(name: str) -> None:
    blocks = FENCE.findall((ROOT / name).read_text())
    (sample,) = (code for _, code in blocks if code.startswith("curl "))
    (shown,) = (code for _, code in blocks if code.startswith("x-weighbridge-"))
    given = re.search(r"-d '(.*)'", sample)
    assert given is not None
    body = json.loads(given[1])
    weight = assess(body)
    # What `make serve` brings up: both tiers, nothing to leave for.
    facts = Facts(tenant="default", local_roads=("local-8b", "local-70b"), commercial_configured=False)
    decision = decide(body["model"], weight, shipped("default"), facts)
    headers = weighbridge_headers(
        request_id="",
        road=decision.road,
        score=decision.score,
        task=decision.task,
        policy=decision.policy_version,
        attempts=1,
        queue_ms=0.0,
        reason=decision.reasons[-1],
    )
    told = [f"{header.decode()}: {value.decode('latin-1')}" for header, value in headers]
    assert shown.splitlines() == [
        line for line in told if not re.match(r"x-weighbridge-(attempts|queue-ms):", line)
    ]


def test_the_first_policy_is_valid(tmp_path: Path) -> None:
    (policy,) = (body for kind, body in FENCE.findall((ROOT / "README.md").read_text()) if kind == "yaml")
    file = tmp_path / "my-policy.yaml"
    file.write_text(policy)
    assert check_policy(file) == []


def test_operations_names_the_limits_on_a_body() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    assert f"| {MAX_NODES:,} values and names" in page
    assert f"| {MAX_DEPTH} levels of nesting" in page


def test_decisions_are_numbered_without_gaps() -> None:
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [page.name[:4] for page in pages] == [f"{n:04d}" for n in range(1, len(pages) + 1)]
    for number, page in enumerate(pages, start=1):
        assert page.read_text().startswith(f"# {number}. "), page.name
