"""Valid values of every kind, at every place of a request, written in many ways: none of them is seen outside."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.disguises import DISGUISES, SINGLE, Disguise
from tests.support.korean_names import korean_names
from tests.support.outward import Outward, outward
from tests.support.personal_data import KINDS, NAME
from tests.support.planting import Case, case, drawn
from tests.support.request_fields import PATHS
from tests.support.request_schema import our_fields, published_paths
from tests.support.request_sites import SITES, Site
from tests.support.wire_reading import found, pieces

NAMES = korean_names(Random(4), 400)
PLAIN = Disguise(("plain",))
SAID = next(site for site in SITES if site.name == "content of user")
PER_RUN, PER_SOAK = 250, 6000


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outward]:
    """A gateway whose tenant has a list with all the names that are planted."""
    with outward(tmp_path_factory.mktemp("listed"), names=NAMES) as started:
        yield started


def report(leaked: list[tuple[Case, set[str]]]) -> str:
    """One line for each kind and disguise, the shortest example first."""
    shortest: dict[tuple[str, str], tuple[Case, set[str]]] = {}
    for one, seen in leaked:
        key = (one.planted.kind, str(one.disguise))
        if key not in shortest or len(one.text) < len(shortest[key][0].text):
            shortest[key] = (one, seen)
    lines = sorted(f"{one} -> {sorted(seen)[:3]}" for one, seen in shortest.values())
    return f"{len(leaked)} leaks:\n" + "\n".join(lines)


def all_leaks(side: Outward, cases: Iterator[Case]) -> list[tuple[Case, set[str]]]:
    return [(one, seen) for one in cases if (seen := side.leaks(one))]


# ---- the proof is whole ----


def test_every_published_field_has_a_site() -> None:
    """A field that is new in the `openai` package fails here until it is written down in `request_fields`."""
    assert set(PATHS) == published_paths()


def test_every_field_our_walker_knows_has_a_site() -> None:
    named = {name for path in PATHS for name in path.replace("[]", "").split(".")}
    assert our_fields() <= named, sorted(our_fields() - named)


def test_every_site_holds_what_is_planted() -> None:
    for site in SITES:
        request = site.build("MARK 912-345-6789", "912-345-6789")
        assert request is not None
        whole = json.dumps(request.body) + request.query + repr(request.headers)
        assert found(whole.encode(), "912-345-6789") == pieces("912-345-6789"), site.name
    assert len({site.name for site in SITES}) == len(SITES) > 200


@pytest.mark.parametrize("kind", KINDS)
def test_whoever_reads_the_wire_sees_through_every_disguise(kind: str) -> None:
    """What is found is what was planted, so that finding nothing means something."""
    rng = Random(kind)
    for disguise in DISGUISES:
        one = case(rng, kind, disguise, SAID)
        assert one is not None
        for ascii_only in (True, False):
            raw = json.dumps(one.request.body, ensure_ascii=ascii_only).encode()
            assert one.seen_in(raw) == pieces(one.planted.value), one


@pytest.mark.parametrize(
    "hidden", ["MDEwLTEyMzQtNTY3OA==", "3031302d313233342d35363738", "&#48;10&#45;1234-5678"]
)
def test_whoever_reads_the_wire_decodes_it(hidden: str) -> None:
    assert found(json.dumps({"messages": [{"content": f"a {hidden} b"}]}).encode(), "010-1234-5678")


# ---- nothing is seen ----


@pytest.mark.parametrize("kind", KINDS)
def test_plain_values_leave_masked_and_come_back(side: Outward, kind: str) -> None:
    """So that the tests below do not hold by refusing everything."""
    rng = Random(kind)
    for _ in range(3):
        one = case(rng, kind, PLAIN, SAID, NAMES)
        assert one is not None
        passed = side.send(one.request)
        assert passed.answer.status_code == 200, (one, passed.answer.text)
        assert one.seen_in(passed.sent) == set(), one
        assert one.planted.value in passed.answer.json()["choices"][0]["message"]["content"]


def test_no_listed_name_is_seen_at_any_site(side: Outward) -> None:
    """The value that has no shape which a look at the final bytes could find: what sends it on is seen here."""
    rng = Random(11)
    cases = (case(rng, NAME, PLAIN, site, NAMES) for site in SITES)
    leaked = all_leaks(side, (one for one in cases if one is not None))
    assert not leaked, report(leaked)


def test_no_value_is_seen_at_any_site_in_any_disguise(side: Outward) -> None:
    leaked = all_leaks(side, drawn(Random(2026), PER_RUN, NAMES))
    assert not leaked, report(leaked)


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    kind=st.sampled_from(list(KINDS)),
    disguise=st.sampled_from(SINGLE),
    site=st.sampled_from(SITES),
    seed=st.integers(0, 2**16),
)
def test_no_value_is_seen_that_hypothesis_comes_upon(
    side: Outward, kind: str, disguise: Disguise, site: Site, seed: int
) -> None:
    one = case(Random(seed), kind, disguise, site, NAMES)
    assert one is None or side.leaks(one) == set(), one


@pytest.mark.soak
def test_no_value_is_seen_in_thousands_of_cases(side: Outward) -> None:
    seed = secrets.randbits(32)
    leaked = all_leaks(side, drawn(Random(seed), PER_SOAK, NAMES))
    assert not leaked, f"seed {seed}: {report(leaked)}"


def test_names_of_no_list_are_a_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Masked is not anonymous: without a list it is the layers' word alone. A figure to look at, not a gate."""
    rng, seen, left, count = Random(7), 0, 0, 80
    with outward(tmp_path) as side:
        for one in (case(rng, NAME, PLAIN, SAID) for _ in range(count)):
            assert one is not None
            passed = side.send(one.request)
            left += bool(passed.sent)
            seen += bool(one.seen_in(passed.sent))
    with capsys.disabled():
        sys.stdout.write(
            f"\nnames of no list: {seen} of {count} came through, {count - left} stayed refused\n"
        )
    assert left > 0
