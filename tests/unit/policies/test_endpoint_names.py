"""A policy that names a commercial endpoint which is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.running import policy_file
from weighbridge.policies.loader import check_policy

STEPS = [{"main": 3, "secnod": 1}, {"last": 1}]


def test_a_misspelled_endpoint_is_named_with_the_one_that_was_meant(tmp_path: Path) -> None:
    found = check_policy(policy_file(tmp_path, endpoints=STEPS), (), ("main", "second", "last"))
    (problem,) = found
    assert problem.field == "endpoints[0].secnod" and problem.line is not None
    assert "main, second, last" in problem.message and "did you mean second?" in problem.message


@pytest.mark.parametrize("known", [None, (), ("main", "secnod", "last", "more")])
def test_where_nothing_is_known_or_all_of_it_is_there_the_policy_is_taken(
    tmp_path: Path, known: tuple[str, ...] | None
) -> None:
    assert check_policy(policy_file(tmp_path, endpoints=STEPS), (), known) == []
