"""The admin's overlay: what a patch may say, and what it makes of a document."""

from __future__ import annotations

from typing import Any

import pytest

from weighbridge.config.errors import ApiError
from weighbridge.policies.checking import Deployment
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
    assert one.values == {"bounds": {"local_8b": 0.2}}
    two = patched(one, bounds={"local_70b": 0.9}, queue_lock_timeout_ms=7)
    assert two.values == {"bounds": {"local_8b": 0.2, "local_70b": 0.9}, "queue_lock_timeout_ms": 7}
    assert patched(two, bounds={"local_8b": None}).values == {
        "bounds": {"local_70b": 0.9},
        "queue_lock_timeout_ms": 7,
    }
    assert patched(two, bounds=None).values == {"queue_lock_timeout_ms": 7}
    assert patched(two, queue_lock_timeout_ms=None).values == {"bounds": two.values["bounds"]}
    other = Overlay({"tenants": {"a": None}})
    assert patched(other, queue_lock_timeout_ms=7).values == {**other.values, "queue_lock_timeout_ms": 7}


def test_over_a_document() -> None:
    made = Overlay({"bounds": {"local_8b": 0.2}, "queue_lock_timeout_ms": 7}).over(DOCUMENT)
    assert (made.bounds.local_8b, made.bounds.local_70b, made.queue_lock_timeout_ms) == (0.2, 0.55, 7)
    assert made.tenants["a"].queue_lock_timeout_ms == 1000, "the shorter of the two counts"
    assert Overlay().over(DOCUMENT) is DOCUMENT
    assert DOCUMENT.bounds.local_8b == 0.45
    assert Overlay({"tenants": {"a": None, "gone": None}}).over(DOCUMENT).tenants == {}


@pytest.mark.parametrize(
    ("values", "at", "message"),
    [
        ({"bounds": {"local_8b": 0.6}}, ("bounds", "local_70b"), "must not be below local_8b (0.6)"),
        ({"bounds": {"local_8b": 2}}, ("bounds", "local_8b"), "must be a number between 0 and 1"),
        ({"x": 1}, ("x",), "unknown key"),
        ({"bounds": 3}, ("bounds",), "must be a mapping"),
        ({"name": None}, ("name",), "is missing: must be text"),
        ({"egress": "masked"}, ("egress",), "must be never: policies.max_egress of the settings is never"),
    ],
)
def test_what_is_no_policy_under_the_overlay_is_told_by_its_path(
    values: dict[str, Any], at: tuple[str, ...], message: str
) -> None:
    with pytest.raises(OverlayConflict) as caught:
        Overlay(values).over(DOCUMENT, Deployment(max_egress="never" if "egress" in values else "masked"))
    ((path, why),) = caught.value.found
    assert path == at and why.startswith(message)
