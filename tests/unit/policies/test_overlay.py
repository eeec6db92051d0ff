"""The admin's overlay: what a patch may say, and what it makes of a document."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.config.errors import ApiError
from weighbridge.policies.overlay import Overlay, OverlayConflict, parse_patch
from weighbridge.policies.schema import PolicyDocument

DOCUMENT = PolicyDocument.model_validate(
    {
        "version": 1,
        "name": "p",
        "egress": "masked",
        "tenants": {"a": {"queue_lock_timeout_ms": 1000}},
    }
)

REFUSED: dict[str, tuple[Any, str | None, str]] = {
    "no object": ([], None, "The body must be a JSON object."),
    "no reason": ({"bounds": {"local_8b": 0.4}}, "reason", "reason: is missing"),
    "blank reason": (
        {"queue_lock_timeout_ms": 1, "reason": "  "},
        "reason",
        "reason: must be text on one line",
    ),
    "empty reason": (
        {"queue_lock_timeout_ms": 1, "reason": ""},
        "reason",
        "reason: must be text of 1 to 500",
    ),
    "long reason": (
        {"queue_lock_timeout_ms": 1, "reason": "x" * 501},
        "reason",
        "reason: must be text of 1 to 500",
    ),
    "reason of two lines": (
        {"queue_lock_timeout_ms": 1, "reason": "a\nb"},
        "reason",
        "reason: must be text on one line",
    ),
    "reason with half a character": (
        {"queue_lock_timeout_ms": 1, "reason": "\ud800"},
        "reason",
        "reason: must be text",
    ),
    "nothing": ({"reason": "r"}, None, "Nothing to change"),
    "nothing in bounds": ({"bounds": {}, "reason": "r"}, None, "Nothing to change"),
    "unknown key": ({"egress": "masked", "reason": "r"}, "egress", "egress: unknown key"),
    "unknown bound": (
        {"bounds": {"local_9b": 0.1}, "reason": "r"},
        "bounds.local_9b",
        "bounds.local_9b: unknown key; did you mean local_8b?",
    ),
    "unknown key that is text": (
        {"planted text": 1, "reason": "r"},
        "(key)",
        "(key): unknown key; known here: bounds, queue_lock_timeout_ms, reason.",
    ),
    "unknown bound that is text": (
        {"bounds": {"planted" * 6: 0.1}, "reason": "r"},
        "bounds.(key)",
        "bounds.(key): unknown key; known here: local_8b, local_70b.",
    ),
    "text": (
        {"bounds": {"local_8b": "0.4"}, "reason": "r"},
        "bounds.local_8b",
        "bounds.local_8b: must be a number between 0 and 1, not text",
    ),
    "true": (
        {"bounds": {"local_8b": True}, "reason": "r"},
        "bounds.local_8b",
        "bounds.local_8b: must be a number between 0 and 1.",
    ),
    "nan": (
        {"bounds": {"local_8b": float("nan")}, "reason": "r"},
        "bounds.local_8b",
        "bounds.local_8b: must be a number between 0 and 1.",
    ),
    "above 1": (
        {"bounds": {"local_70b": 1.5}, "reason": "r"},
        "bounds.local_70b",
        "bounds.local_70b: must be a number between 0 and 1.",
    ),
    "bounds is a list": ({"bounds": [0.1], "reason": "r"}, "bounds", "bounds: must be a mapping"),
    "queue lock 0": (
        {"queue_lock_timeout_ms": 0, "reason": "r"},
        "queue_lock_timeout_ms",
        "queue_lock_timeout_ms: must be a whole number between 1 and 600000.",
    ),
    "queue lock 1.5": (
        {"queue_lock_timeout_ms": 1.5, "reason": "r"},
        "queue_lock_timeout_ms",
        "queue_lock_timeout_ms: must be a whole number",
    ),
}


def test_a_refusal_names_a_few_problems_and_never_a_key_that_is_text() -> None:
    with pytest.raises(ApiError) as caught:
        parse_patch({f"planted {n}": n for n in range(1000)})
    assert "planted" not in f"{caught.value.message} {caught.value.param}"
    assert len(caught.value.message) < 1000


@pytest.mark.parametrize(("body", "param", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_patches(body: Any, param: str | None, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_patch(body)
    assert (caught.value.status, caught.value.type, caught.value.param) == (
        400,
        "invalid_request_error",
        param,
    )
    assert caught.value.message.startswith(message)


def patched(overlay: Overlay, **body: Any) -> Overlay:
    return overlay.patched(parse_patch({"reason": "r", **body}))


def test_a_patch_changes_what_it_names_and_null_takes_away() -> None:
    one = patched(Overlay(), bounds={"local_8b": 0.2})
    assert one == Overlay(local_8b=0.2)
    two = patched(one, bounds={"local_70b": 0.9}, queue_lock_timeout_ms=7)
    assert two == Overlay(0.2, 0.9, 7)
    assert patched(two, bounds={"local_8b": None}) == Overlay(None, 0.9, 7)
    assert patched(two, bounds=None) == Overlay(None, None, 7)
    assert patched(two, queue_lock_timeout_ms=None) == Overlay(0.2, 0.9, None)


def test_over_a_document() -> None:
    made = Overlay(local_8b=0.2, queue_lock_timeout_ms=7).over(DOCUMENT)
    assert (made.bounds.local_8b, made.bounds.local_70b, made.queue_lock_timeout_ms) == (0.2, 0.55, 7)
    assert Overlay().over(DOCUMENT) == DOCUMENT
    assert DOCUMENT.bounds.local_8b == 0.45


@pytest.mark.parametrize(
    ("overlay", "field", "message"),
    [
        (Overlay(local_8b=0.6), "local_70b", "must not be below bounds.local_8b, set to 0.6 by an admin"),
        (Overlay(local_70b=0.1), "local_8b", "must not be above bounds.local_70b, set to 0.1 by an admin"),
    ],
)
def test_bounds_out_of_order_blame_the_file_beside_the_overlay(
    overlay: Overlay, field: str, message: str
) -> None:
    with pytest.raises(OverlayConflict) as caught:
        overlay.over(DOCUMENT)
    assert (caught.value.field, caught.value.message) == (("bounds", field), message)


@given(
    st.builds(
        Overlay,
        st.none() | st.floats(0, 1),
        st.none() | st.floats(0, 1),
        st.none() | st.integers(1, 600_000),
    )
)
def test_values_are_read_back(overlay: Overlay) -> None:
    assert Overlay.of(overlay.values()) == overlay
    assert bool(overlay.values()) is (overlay != Overlay())


@pytest.mark.parametrize("values", [{"bounds": {"local_8b": 2}}, {"x": 1}, {"bounds": 3}])
def test_stored_values_that_are_not_ours_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"bounds|unknown key"):
        Overlay.of(values)
