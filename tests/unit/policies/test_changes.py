"""Propose, apply, roll back: what is refused changes nothing, and what is applied is what was shown."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.policies.states import TEXT, FixedClock, MemoryState
from weighbridge.config.errors import ApiError, ConfigError
from weighbridge.policies.changes import MAX_PROBLEMS, PolicyChanges, PolicyRefused
from weighbridge.policies.difference import Change
from weighbridge.policies.store import PolicyStore
from weighbridge.state.store import StateStore, StateUnavailable

WITH_TENANTS = TEXT + "tenants:\n  acme: {pin: local-70b}\n  lab: {egress: never}\n"


class Desk:
    """A store on a file, and its changes."""

    def __init__(self, file: Path, state: StateStore | None = None, **settings: Any) -> None:
        self.file = file
        self.state = state or MemoryState()
        self.store = PolicyStore(file, self.state, **settings)
        self.changes = PolicyChanges(self.store)

    def overlay(self, given: Any, why: str = "r") -> int:
        return self.changes.propose("overlay", given, "ann", why).stored.entry.id

    def apply(self, number: int, *, rebase: bool = False) -> str:
        return self.changes.apply(number, "bob", rebase).version

    def sources(self) -> list[tuple[str, str, str]]:
        return [(one.source, one.who, one.why) for one in self.changes.versions(0, 99)]


@pytest.fixture
def desk(file: Path) -> Desk:
    return Desk(file)


def test_a_proposal_is_kept_and_nothing_comes_into_force(desk: Desk) -> None:
    before = desk.store.current
    seen = desk.changes.propose("overlay", "bounds:\n  local_8b: 0.3\n", "ann", "too short")
    assert desk.store.current is before
    entry = seen.stored.entry
    assert (entry.id, entry.who, entry.why, entry.form) == (1, "ann", "too short", "overlay")
    assert (entry.base_version, entry.applied, entry.at_ns > 0) == (before.version, None, True)
    assert (seen.in_force, seen.stale) == (before.version, False)
    assert seen.changes == [Change("/bounds/local_8b", 0.45, 0.3)]
    assert desk.changes.proposal(1) == seen
    assert [one.id for one in desk.changes.proposals(0, 9)] == [1]


def test_what_is_applied_is_what_was_shown(desk: Desk) -> None:
    base = desk.store.current.version
    number = desk.overlay({"bounds": {"local_8b": 0.3}, "tenants": {"acme": {"pin": "local-70b"}}}, "why not")
    shown = desk.changes.proposal(number).stored
    made = desk.apply(number)
    assert made == shown.entry.version == desk.store.current.version != base
    assert desk.store.current.content() == shown.content
    stored = desk.changes.version(made)
    assert (stored.entry.source, stored.entry.who, stored.entry.why) == ("admin", "bob", "why not")
    assert (stored.entry.base_version, stored.entry.proposal) == (base, number)
    assert stored.overlay == {"bounds": {"local_8b": 0.3}, "tenants": {"acme": {"pin": "local-70b"}}}
    assert desk.changes.proposal(number).stored.entry.applied == stored.entry.id
    assert desk.sources() == [("file", "", ""), ("admin", "bob", "why not")]
    assert Desk(desk.file, desk.state).store.current == desk.store.current, "and after a restart"
    assert len(desk.changes.versions(0, 99)) == 2, "which is no version of its own"


def test_a_whole_document_takes_away_what_it_leaves_out(file: Path) -> None:
    file.write_text(WITH_TENANTS)
    desk = Desk(file)
    whole = yaml.safe_load(TEXT) | {"tenants": {"lab": {"egress": "never"}}, "name": "q"}
    seen = desk.changes.propose("policy", yaml.safe_dump(whole), "ann", "r")
    assert {change.path for change in seen.changes} == {"/name", "/tenants/acme"}
    desk.apply(seen.stored.entry.id)
    assert desk.store.standing.overlay.values == {"name": "q", "tenants": {"acme": None}}
    assert desk.store.current.place("chat", 0.1, "acme").road == "local-8b"
    # A later change of the file keeps both that and what it says itself.
    file.write_text(WITH_TENANTS.replace("0.45", "0.40") + "  new: {priority: batch}\n")
    assert desk.store.reload_if_changed()
    assert sorted(desk.store.current.content()["tenants"]) == ["lab", "new"]
    assert desk.store.current.local_8b == 0.40
    assert desk.sources()[-1] == ("file", "", "")


def test_a_value_set_on_purpose_stays_when_the_file_changes(desk: Desk) -> None:
    desk.apply(desk.overlay({"bounds": {"local_8b": 0.45}, "queue_lock_timeout_ms": 7}))
    desk.file.write_text(TEXT.replace("0.45", "0.30"))
    assert desk.store.reload_if_changed() is False
    assert desk.store.current.local_8b == 0.45


REFUSED: dict[str, tuple[str, Any, list[tuple[int | None, int | None, str]]]] = {
    "no policy": ("policy", "name: p\n", [(1, 1, "egress"), (1, 1, "version")]),
    "no yaml": ("policy", "a: [\n", [(2, 1, "")]),
    "twice": ("overlay", "bounds: {local_8b: 0.1}\nbounds: {}\n", [(2, 1, "bounds")]),
    "anchor and more": (
        "overlay",
        "bounds: &x\n  local_8b: 7\nx: 1\n",
        [(1, 9, "bounds"), (2, 3, "bounds.local_8b"), (3, 1, "x")],
    ),
    "object": (
        "overlay",
        {"bounds": {"local_8b": 7}, "x": 1},
        [(None, None, "bounds.local_8b"), (None, None, "x")],
    ),
    "against the rest": ("overlay", "bounds: {local_8b: 0.9}\n", [(1, 1, "bounds.local_70b")]),
    "against what is not in it": (
        "overlay",
        "queue_lock_timeout_ms: 1\noutward: {max_people: 1}\n",
        [(None, None, "tenants.t.max_people")],
    ),
    "nothing": ("overlay", {}, [(None, None, "")]),
    "the same": ("overlay", "bounds: {local_8b: 0.45}\n", [(None, None, "")]),
    "half a character": ("overlay", "name: \ud800\n", [(1, 7, "")]),
    "inherits": ("policy", "version: 1\nname: q\negress: masked\nextends: p\n", [(4, 1, "extends")]),
}


@pytest.mark.parametrize(("form", "given", "places"), REFUSED.values(), ids=REFUSED)
def test_a_refused_proposal_names_every_place_and_changes_nothing(
    file: Path, form: Any, given: Any, places: list[Any]
) -> None:
    file.write_text(TEXT + "tenants: {t: {max_people: 5}}\n")
    desk = Desk(file)
    before, standing = desk.store.current, desk.store.standing
    with pytest.raises(PolicyRefused) as caught:
        desk.changes.propose(form, given, "ann", "r")
    assert (caught.value.status, caught.value.code) == (400, "invalid_policy")
    assert [(one.line, one.column, one.field) for one in caught.value.problems] == places
    assert desk.store.current is before and desk.store.standing is standing
    assert desk.changes.proposals(0, 9) == [] and len(desk.changes.versions(0, 9)) == 1


def test_many_problems_are_cut() -> None:
    assert len(PolicyRefused(_many()).problems) == MAX_PROBLEMS


def _many() -> list[Any]:
    from weighbridge.config.problems import Problem

    return [Problem("p", n, "", "m") for n in range(1, 500)]


def test_a_proposal_whose_base_has_moved_needs_a_rebase(desk: Desk) -> None:
    first = desk.overlay({"bounds": {"local_8b": 0.3}})
    whole = desk.changes.propose("policy", TEXT.replace("0.55", "0.70"), "ann", "r").stored.entry.id
    desk.store.patch_thresholds({"queue_lock_timeout_ms": 7}, who="ops", why="r")
    before = desk.store.current
    for number in (first, whole):
        assert desk.changes.proposal(number).stale
        with pytest.raises(ApiError) as caught:
            desk.apply(number)
        assert (caught.value.status, caught.value.code) == (409, "base_moved")
        assert desk.store.current is before
    assert desk.changes.proposal(first).changes == [Change("/bounds/local_8b", 0.45, 0.3)]
    desk.apply(first, rebase=True)
    desk.apply(whole, rebase=True)
    made = desk.store.current
    assert (made.local_8b, made.local_70b, made.queue_lock_timeout_ms) == (0.3, 0.70, 7)


def test_a_rebase_that_makes_no_policy_is_refused(desk: Desk) -> None:
    number = desk.overlay({"bounds": {"local_8b": 0.5}})
    desk.store.patch_thresholds({"bounds": {"local_70b": 0.48}}, who="ops", why="r")
    before = desk.store.current
    with pytest.raises(PolicyRefused) as caught:
        desk.apply(number, rebase=True)
    assert caught.value.param == "bounds.local_70b"
    assert desk.store.current is before


def test_a_proposal_is_applied_once_whoever_tries_at_the_same_time(desk: Desk) -> None:
    number = desk.overlay({"queue_lock_timeout_ms": 7})
    start, codes = threading.Barrier(4), []

    def run() -> None:
        start.wait()
        try:
            codes.append(desk.apply(number))
        except ApiError as exc:
            codes.append(str(exc.code))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == sorted([desk.store.current.version] + ["already_applied"] * 3)
    assert len(desk.changes.versions(0, 99)) == 2


def test_a_rollback_brings_back_what_was_in_force(file: Path) -> None:
    file.write_text(WITH_TENANTS)
    desk = Desk(file)
    first = desk.store.current
    desk.apply(desk.overlay({"tenants": {"acme": None, "new": {"ceiling": "local-8b"}}}))
    second = desk.store.current
    desk.store.patch_thresholds({"bounds": {"local_8b": 0.1}}, who="ops", why="r")
    assert desk.changes.roll_back(second.version, "eve", "worse").content() == second.content()
    assert desk.store.current == second
    assert desk.changes.roll_back(1, "eve", "worse still") == first == desk.store.current
    assert desk.store.standing.overlay.values == {}, "nothing lies over the file any more"
    last = desk.changes.versions(0, 99)[-1]
    assert (last.version, last.back_to, last.who, last.why) == (first.version, 1, "eve", "worse still")
    with pytest.raises(ApiError) as caught:
        desk.changes.roll_back(first.version, "eve", "again")
    assert (caught.value.status, caught.value.code) == (409, "in_force")
    # After a change of the file an earlier version is the same as it was.
    file.write_text(TEXT)
    assert desk.store.reload_if_changed()
    assert desk.changes.roll_back(second.version, "eve", "r") == second


@pytest.mark.parametrize(
    "call",
    [
        lambda changes: changes.proposal(7),
        lambda changes: changes.apply(7, "a", False),
        lambda changes: changes.version("p@0"),
        lambda changes: changes.version(7),
        lambda changes: changes.roll_back("p@0", "a", "r"),
    ],
)
def test_what_is_not_there_is_404(desk: Desk, call: Callable[[PolicyChanges], object]) -> None:
    with pytest.raises(ApiError) as caught:
        call(desk.changes)
    assert caught.value.status == 404


def test_no_admin_opens_what_the_settings_keep_shut(file: Path) -> None:
    file.write_text(TEXT.replace("masked", "never"))
    shut = Desk(file, endpoints=())
    with pytest.raises(PolicyRefused) as caught:
        shut.overlay({"egress": "masked"})
    assert "no commercial endpoint" in caught.value.message and caught.value.param == "egress"
    Desk(file, endpoints=("main",)).overlay({"egress": "masked"})
    never = Desk(file, endpoints=("main",), max_egress="never")
    for form, text in (("overlay", "egress: masked\n"), ("policy", TEXT)):
        with pytest.raises(PolicyRefused) as caught:
            never.changes.propose(form, text, "ann", "r")  # type: ignore[arg-type]
        assert (caught.value.param, caught.value.problems[0].line) == (
            "egress",
            1 if form == "overlay" else 3,
        )
    file.write_text(TEXT)
    assert never.store.reload_if_changed() is False and never.store.file_state == "refused"
    # Not by a proposal, a rollback or a change from a time when the settings were laxer either.
    state = MemoryState()
    open_ = Desk(file, state, endpoints=("main",))
    was = open_.store.current.version
    file.write_text(TEXT.replace("masked", "never"))
    open_.store.reload_if_changed()
    number = open_.overlay({"egress": "masked"})
    for held in ({"endpoints": ()}, {"endpoints": ("main",), "max_egress": "never"}):
        later = Desk(file, state, **held)
        for call in (
            lambda later=later: later.apply(number),
            lambda later=later: later.changes.roll_back(was, "eve", "r"),
        ):
            with pytest.raises(PolicyRefused):
                call()
        assert later.store.current.egress == "never"


def test_a_change_that_cannot_be_kept_changes_nothing(desk: Desk) -> None:
    assert isinstance(desk.state, MemoryState)
    number = desk.overlay({"queue_lock_timeout_ms": 7})
    before = desk.store.current
    desk.state.fails = StateUnavailable("disk full")
    calls = (
        lambda: desk.apply(number),
        lambda: desk.overlay({"queue_lock_timeout_ms": 8}),
        lambda: desk.store.patch_thresholds({"queue_lock_timeout_ms": 9}, who="a", why="r"),
    )
    for call in calls:
        with pytest.raises(ApiError) as caught:
            call()
        assert (caught.value.status, caught.value.code) == (503, "state_unavailable")
        assert desk.store.current is before
    desk.state.fails = None
    assert desk.store.record.proposals(0, 9)[0].applied is None
    assert desk.apply(number) == desk.store.current.version


def test_a_version_of_the_file_is_in_force_before_it_can_be_kept_and_kept_later(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    assert isinstance(desk.state, MemoryState)
    desk.state.fails = StateUnavailable("disk full")
    desk.file.write_text(TEXT.replace("0.45", "0.30"))
    assert desk.store.reload_if_changed()
    assert desk.store.current.local_8b == 0.30
    for _ in range(3):
        desk.store.poll()
    assert len(desk.changes.versions(0, 9)) == 1
    assert caplog.text.count("could not be kept") == 1
    desk.state.fails = None
    desk.store.poll()
    assert [one.version for one in desk.changes.versions(0, 9)][1:] == [desk.store.current.version]


def test_a_restart_over_a_conflict_goes_on_with_the_stored_version(file: Path, tmp_path: Path) -> None:
    state = StateStore.open(tmp_path / "s.sqlite3", FixedClock())
    desk = Desk(file, state)
    desk.apply(desk.overlay({"tasks": {"code": {"road": "by-score", "floor": "local-70b"}}}))
    before = desk.store.current
    file.write_text(TEXT + "tasks:\n  code: {road: by-score, ceiling: local-8b}\n")
    again = Desk(file, state)
    assert again.store.current == before
    assert again.store.file_state == "conflict"
    assert str(again.store.problems[0]).startswith(
        f"{file}:8:3: tasks.code.floor: must not be above ceiling local-8b"
    )
    # What an admin does then is on top of what is in force, and the file is taken once it fits.
    again.apply(again.overlay({"tasks": {"code": {"floor": None}}}))
    assert again.store.poll() is True
    assert again.store.file_state == "in_force"
    assert again.store.current.content()["tasks"]["code"] == {"road": "by-score", "ceiling": "local-8b"}
    state.close()


def test_an_overlay_from_before_there_were_versions_goes_on(file: Path) -> None:
    state = MemoryState()
    state.set_overlay({"bounds": {"local_8b": 0.3}}, "ops", "long ago")
    desk = Desk(file, state)
    assert desk.store.current.local_8b == 0.3
    (first,) = desk.changes.versions(0, 9)
    assert desk.changes.version(first.id).overlay == {"bounds": {"local_8b": 0.3}}
    assert desk.store.thresholds()["overlay"]["who"] == "ops"


_patches = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["p", "q", "No Name"]),
        "egress": st.sampled_from(["masked", "never", "maybe"]),
        "queue_lock_timeout_ms": st.one_of(st.integers(-1, 3000), st.none()),
        "bounds": st.fixed_dictionaries(
            {}, optional={"local_8b": st.sampled_from([0.1, 0.5, 0.9, "x", None])}
        ),
        "overflow_order": st.lists(
            st.sampled_from(["commercial", "higher-local", "lower-local"]), max_size=2
        ),
        "tasks": st.dictionaries(
            st.sampled_from(["code", "rag", "codee"]),
            st.one_of(
                st.none(),
                st.fixed_dictionaries(
                    {"road": st.sampled_from(["by-score", "local-8b", "commercial"])},
                    optional={
                        "floor": st.sampled_from(["local-8b", "local-70b"]),
                        "ceiling": st.sampled_from(["local-8b", "commercial"]),
                        "forbid": st.lists(st.sampled_from(["local-8b", "commercial"]), max_size=2),
                    },
                ),
            ),
            max_size=2,
        ),
        "tenants": st.dictionaries(
            st.sampled_from(["a", "b"]),
            st.one_of(
                st.none(),
                st.fixed_dictionaries(
                    {},
                    optional={
                        "pin": st.sampled_from(["local-8b", "local-70b"]),
                        "max_people": st.integers(0, 40),
                    },
                ),
            ),
            max_size=2,
        ),
        "surprise": st.just(1),
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(_patches, st.booleans()), min_size=1, max_size=5))
def test_any_way_of_changes_lands_whole_or_not_at_all(
    file: Path, steps: list[tuple[dict[str, Any], bool]]
) -> None:
    file.write_text(WITH_TENANTS)
    desk = Desk(file)
    landed = [desk.store.current]
    for patch, back in steps:
        before = desk.store.current
        try:
            seen = desk.changes.propose("overlay", patch, "ann", "r")
        except PolicyRefused:
            assert desk.store.current is before
            continue
        assert desk.store.current is before
        tree = _copied(before.content())
        for change in seen.changes:
            _set(tree, change)
        made = desk.changes.apply(seen.stored.entry.id, "bob", False)
        assert made is desk.store.current and made.version == seen.stored.entry.version
        assert made.content() == tree == seen.stored.content
        landed.append(made)
        if back and landed[0].version != made.version:
            assert desk.changes.roll_back(1, "eve", "r") == landed[0]
    kept = [one.version for one in desk.changes.versions(0, 99)]
    assert kept[-1] == desk.store.current.version
    assert {policy.version for policy in landed} == set(kept)
    assert Desk(file, desk.state).store.current == desk.store.current
    for policy in landed:
        assert desk.changes.version(policy.version).content == policy.content()


def _copied(tree: Any) -> Any:
    return {key: _copied(value) for key, value in tree.items()} if isinstance(tree, dict) else tree


def _set(tree: dict[str, Any], change: Change) -> None:
    *way, last = change.path.split("/")[1:]
    for step in way:
        tree = tree[step]
    assert tree.get(last) == change.before
    if change.after is None:
        del tree[last]
    else:
        tree[last] = change.after


def shut(file: Path) -> None:
    file.write_text(TEXT.replace("egress: masked", "egress: never"))


def test_a_file_that_shuts_the_way_out_is_not_held_open_by_an_admin(desk: Desk) -> None:
    desk.apply(desk.overlay({"egress": "masked", "bounds": {"local_8b": 0.3}}))
    shut(desk.file)
    assert desk.store.reload_if_changed()
    assert (desk.store.current.egress, desk.store.current.local_8b) == ("never", 0.3)
    assert desk.sources()[-1] == ("admin", "", "the policy file lets nothing leave")
    again = Desk(desk.file, desk.state)
    assert again.store.current == desk.store.current, "and after a restart"
    assert again.sources() == desk.sources()


def test_nor_where_it_shuts_while_no_gateway_runs(desk: Desk) -> None:
    desk.apply(desk.overlay({"egress": "masked", "bounds": {"local_8b": 0.3}}))
    shut(desk.file)
    for _ in range(2):
        again = Desk(desk.file, desk.state)
        assert (again.store.current.egress, again.store.current.local_8b) == ("never", 0.3)
        assert again.sources()[-1] == ("admin", "", "the policy file lets nothing leave")


def test_an_admin_may_open_it_again_knowing_what_the_file_says(desk: Desk) -> None:
    shut(desk.file)
    desk.store.reload_if_changed()
    desk.apply(desk.overlay({"egress": "masked"}))
    desk.file.write_text(desk.file.read_text() + "# the same\n")
    desk.store.reload_if_changed()
    assert desk.store.current.egress == "masked"
    assert Desk(desk.file, desk.state).store.current.egress == "masked"


def test_what_admins_add_stays_within_what_a_file_may_hold(desk: Desk) -> None:
    before = desk.store.current
    many = {f"tenant-{n:05d}": {"pin": "local-70b", "floor": "local-8b"} for n in range(24_000)}
    with pytest.raises(PolicyRefused, match="larger than 1048576 bytes"):
        desk.overlay({"tenants": many})
    half = {name: rule for name, rule in many.items() if name < "tenant-09000"}
    desk.apply(desk.overlay({"tenants": half}))
    with pytest.raises(PolicyRefused, match="larger than"):
        desk.overlay({"tenants": many})
    assert desk.store.current.version != before.version


def test_old_proposals_that_came_to_nothing_are_dropped(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weighbridge.state.policy_record.MOST_PROPOSALS", 3)
    desk.apply(desk.overlay({"bounds": {"local_8b": 0.1}}))
    for n in range(2, 7):
        desk.overlay({"bounds": {"local_8b": n / 100}})
    assert [one.id for one in desk.changes.proposals(0, 99)] == [1, 4, 5, 6]


def test_a_start_that_cannot_go_on_names_the_way_out(file: Path) -> None:
    first = Desk(file, adapters=("lora",))
    first.apply(first.overlay({"aliases": {"gpt": "lora"}}))
    with pytest.raises(ConfigError, match="`weighbridge overlay drop` takes the changes off"):
        Desk(file, first.state, adapters=())
