"""What lies between two policies: a patch that leads there, and a list that tells of every place."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.policies.difference import Change, difference, merged, patch_between

_keys = st.sampled_from(["a", "b", "c/d", "~"])
_leaves = st.one_of(st.integers(0, 3), st.sampled_from(["x", "y"]), st.lists(st.integers(0, 2), max_size=2))
_trees = st.recursive(
    st.dictionaries(_keys, _leaves, max_size=3),
    lambda held: st.dictionaries(_keys, st.one_of(_leaves, held), max_size=3),
    max_leaves=8,
)


@given(_trees, _trees, _trees)
def test_the_patch_between_two_leads_from_one_to_the_other(
    before: dict[str, Any], after: dict[str, Any], named: dict[str, Any]
) -> None:
    assert merged(before, patch_between(before, after)) == after
    assert merged(before, patch_between(before, after, named)) == after
    assert patch_between(before, before) == {}
    assert (patch_between(before, after) == {}) is (before == after) is (difference(before, after) == [])


def _set(tree: dict[str, Any], change: Change) -> None:
    *way, last = (step.replace("~1", "/").replace("~0", "~") for step in change.path.split("/")[1:])
    for step in way:
        tree = tree[step]
    assert tree.get(last) == change.before
    if change.after is None:
        del tree[last]
    else:
        tree[last] = change.after


@given(_trees, _trees)
def test_the_changes_tell_all_of_it(before: dict[str, Any], after: dict[str, Any]) -> None:
    made = merged(before, {})
    made = _copied(made)
    for change in difference(before, after):
        _set(made, change)
    assert made == after


def _copied(tree: Any) -> Any:
    return {key: _copied(value) for key, value in tree.items()} if isinstance(tree, dict) else tree


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 2}}, [Change("/a/b", 1, 2)]),
        ({"a": {"b/c": 1, "~": 2}}, {"a": {}}, [Change("/a/b~1c", 1, None), Change("/a/~0", 2, None)]),
        ({}, {"a": {"b": 1}}, [Change("/a", None, {"b": 1})]),
        ({"a": [1, 2]}, {"a": [2, 1]}, [Change("/a", [1, 2], [2, 1])]),
    ],
)
def test_a_change_is_told_by_its_pointer(
    before: dict[str, Any], after: dict[str, Any], changes: list[Change]
) -> None:
    assert difference(before, after) == changes


def test_what_was_set_on_purpose_stays_in_the_patch() -> None:
    base = {"bounds": {"low": 1, "high": 2}, "name": "p"}
    named = {"bounds": {"low": 1}, "gone": 5}
    assert patch_between(base, base, named) == {"bounds": {"low": 1}}
    assert patch_between(base, base | {"name": "q"}, named) == {"bounds": {"low": 1}, "name": "q"}
