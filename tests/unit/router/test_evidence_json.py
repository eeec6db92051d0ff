"""JSON answers and tool calls against what was asked for, and schemas that would keep a validator busy for ever."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Callable
from typing import Any, get_args

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.config.evidence import Evidence
from weighbridge.router.evidence import Look, find
from weighbridge.router.evidence_answer import Asked, Call, Said
from weighbridge.router.evidence_json import Allowance, NotJson, TooMuch, fits, read_json

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "pattern": "^[A-Z]"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def ample() -> Allowance:
    return Allowance(2.0)


def asking(schema: Any = None, **more: Any) -> Asked:
    form: dict[str, Any] = {"type": "json_object"}
    if schema is not None:
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return Asked({"messages": [], "response_format": form, **more}, "extraction")


def offering(parameters: Any, **more: Any) -> Asked:
    tools = [{"type": "function", "function": {"name": "look", "parameters": parameters}}]
    return Asked({"messages": [], "tools": tools, **more}, "chat")


def shown(evidence: Evidence, asked: Asked, *answer: Said, whole: bool = True) -> bool:
    return find(Look({evidence}, whole=whole), asked, answer, None, ample()) == evidence


def bad_json(asked: Asked, text: str, **more: Any) -> bool:
    return shown("invalid_json", asked, Said(text, finish="stop", **more))


def bad_call(asked: Asked, *calls: tuple[str, str], text: str = "") -> bool:
    said = Said(text, calls=[Call("function", name, arguments) for name, arguments in calls], finish="stop")
    return shown("invalid_tool_call", asked, said)


# ---- JSON ----


@given(values)
def test_what_is_json_is_read_as_it_was_written(value: Any) -> None:
    assert read_json(json.dumps(value)) == value
    assert read_json(json.dumps(value, ensure_ascii=False, indent=2)) == value


@given(st.dictionaries(st.text(min_size=1), values, min_size=1, max_size=3), st.data())
def test_json_that_is_cut_off_anywhere_is_evidence(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = data.draw(st.integers(0, len(text) - 1))
    assert bad_json(asking(), text[:cut]) and not bad_json(asking(), text)


@given(st.text(max_size=60))
def test_any_text_at_all_is_judged_without_an_error(text: str) -> None:
    def no_constant(name: str) -> None:
        raise ValueError(name)

    try:
        is_json = isinstance(json.loads(text, parse_constant=no_constant), dict | list)
    except ValueError:
        is_json = False
    assert bad_json(asking(), text) is not is_json


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity]", "{'a': 1}", '{"a": 1,}', "Sure! {}", "```json\n{}\n```", ""]
)
def test_what_only_looks_like_json(text: str) -> None:
    with pytest.raises(NotJson):
        read_json(text)
    assert bad_json(asking(), text)


@pytest.mark.parametrize("text", ['{"a": "\\ud800"}', '{"a": 1e400}', "  {}\n", "[]", '{"a": 1, "a": 2}'])
def test_odd_json_is_json(text: str) -> None:
    assert not bad_json(asking(), text)


def test_a_bare_value_is_no_json_object_but_may_fit_a_schema() -> None:
    assert bad_json(asking(), "3") and bad_json(asking(), '"yes"')
    assert not bad_json(asking({"enum": ["yes", "no"]}), '"yes"')


def test_where_no_json_was_asked_for_any_text_will_do() -> None:
    for body in (
        {},
        {"response_format": None},
        {"response_format": {"type": "text"}},
        {"response_format": "json"},
    ):
        assert not bad_json(Asked({"messages": [], **body}, "chat"), "no JSON")


def test_calls_and_refusals_stand_in_for_the_json() -> None:
    assert not bad_json(asking(), "", calls=[Call("function", "look", "{}")])
    assert not bad_json(asking(), "", refusal=True)


def test_the_beginning_of_a_json_answer_is_not_judged() -> None:
    assert not shown("invalid_json", asking(), Said('{"a": '), whole=False)


def test_what_the_caller_has_ended_itself_is_no_evidence() -> None:
    cut, whole = '{"name": "An', '{"name": "ann", "age": 3}'
    for more, finish, stop in (
        ({"max_tokens": 9}, "length", None),
        ({"max_completion_tokens": 9}, "length", None),
        ({"stop": ["n"]}, "stop", None),
        ({}, "stop", "n"),
    ):

        def said(text: str, finish: str = finish, stop: Any = stop, **calls: Any) -> Said:
            return Said(text, finish=finish, stop=stop, **calls)

        def calling(arguments: str, finish: str = finish, stop: Any = stop) -> Said:
            return Said(calls=[Call("function", "look", arguments)], finish=finish, stop=stop)

        asked, named = asking(PERSON, **more), offering(PERSON, **more)
        assert not shown("invalid_json", asked, said(cut))
        assert not shown("invalid_json", asked, said("1"))
        assert shown("invalid_json", asked, said(whole)), "it is whole, and does not fit"
        assert not shown("invalid_tool_call", named, calling(cut))
        assert not shown("invalid_tool_call", named, calling(""))
        assert shown("invalid_tool_call", named, calling(whole))
        assert not shown("invalid_tool_call", named, said("<tool_call>"))
        must = offering(PERSON, tool_choice="required", **more)
        assert not shown("invalid_tool_call", must, said("Let me see."))
    for more, finish in (({}, "length"), ({"max_tokens": 9}, "stop")):
        assert shown("invalid_json", asking(PERSON, **more), Said(cut, finish=finish))
        assert shown("invalid_tool_call", offering(PERSON, **more), Said("<tool_call>", finish=finish))


def test_one_choice_that_is_good_is_enough() -> None:
    good, bad = Said("{}", finish="stop"), Said("no", finish="stop")
    assert not shown("invalid_json", asking(), good, bad)
    assert shown("invalid_json", asking(), bad, bad)


def test_what_is_nested_too_deeply_to_tell_is_told_so() -> None:
    with pytest.raises(TooMuch):
        read_json("[" * 100_000)


# ---- schemas ----


@given(st.text(st.characters(codec="utf-8"), min_size=1), st.integers(0, 200))
def test_an_answer_that_fits_is_no_evidence(name: str, age: int) -> None:
    text = json.dumps({"name": "A" + name, "age": age})
    assert not bad_json(asking(PERSON), text)


@given(values)
def test_only_what_fits_passes(value: Any) -> None:
    fit = (
        isinstance(value, dict)
        and set(value) == {"name", "age"}
        and isinstance(value["name"], str)
        and value["name"][:1].isascii()
        and value["name"][:1].isupper()
        and not isinstance(value["age"], bool)
        and isinstance(value["age"], int | float)
        and value["age"] >= 0
        and float(value["age"]).is_integer()
    )
    assert bad_json(asking(PERSON), json.dumps(value)) is not fit


@pytest.mark.parametrize(
    "value",
    [
        {"name": "Ann"},
        {"name": "ann", "age": 3},
        {"name": "Ann", "age": -1},
        {"name": "Ann", "age": "3"},
        {"name": "Ann", "age": 3, "more": 1},
        [],
    ],
)
def test_each_way_of_not_fitting(value: Any) -> None:
    assert bad_json(asking(PERSON), json.dumps(value))


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (
            {"patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
            {"xa": 1},
            {"ya": 1},
        ),
        ({"patternProperties": {"^x": {"type": "integer"}}}, {"y": "a"}, {"xa": "a"}),
        ({"additionalProperties": {"type": "integer"}}, {"a": 1}, {"a": "b"}),
        ({"uniqueItems": True}, [1, True, "1", [1], {"a": 1}], [{"a": 1, "b": [2]}, {"b": [2.0], "a": 1.0}]),
        ({"uniqueItems": False}, [1, 1], None),
        (
            {"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}},
            {"a": 1},
            {"a": "b"},
        ),
        ({"anyOf": [{"type": "string"}, {"maximum": 3, "type": "number"}]}, 3, 4),
        ({"pattern": r"^\p{Hangul}+$"}, "서울", "Seoul"),
        ({"prefixItems": [{"type": "integer"}, {"type": "string"}]}, [1, "a"], ["a", 1]),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}]}, [1], ["a"]),
        (
            {"$schema": "https://json-schema.org/draft/2019-09/schema", "dependentRequired": {"a": ["b"]}},
            {"a": 1, "b": 1},
            {"a": 1},
        ),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"b": 1}, {"a": 1}),
        ({"multipleOf": 0.01}, 19.99, 19.995),
        ({"multipleOf": 0.1}, 0.3, 0.35),
        ({"multipleOf": 1e-9}, 123456.789, 1e-10),
        ({"multipleOf": 3}, 9, 10),
        ({"multipleOf": 3}, "9", None),
        ({"multipleOf": 3}, True, None),
        ({"multipleOf": 0.01}, 1e300, None),
        ({"multipleOf": 0}, 1, None),
        ({"multipleOf": "a"}, 1, None),
        ({"maximum": 5, "exclusiveMaximum": True}, 4, 6),
        ({"minimum": 5, "exclusiveMinimum": False}, 5, 4),
        ({"minimum": 0, "exclusiveMinimum": True}, 0.5, -1),
        ({"exclusiveMinimum": 1, "exclusiveMaximum": 3}, 2, 1),
        ({"exclusiveMinimum": 1, "exclusiveMaximum": 3}, 2, 3),
        ({"type": "string", "nullable": True}, None, 3),
        ({"type": "string", "nullable": False}, "", None),
        ({"enum": ["a"], "nullable": True}, None, "b"),
        ({"nullable": True, "allOf": [{"type": "string"}]}, None, 3),
        ({"properties": {"a": {"type": "string", "nullable": True}}}, {"a": None}, {"a": 3}),
    ],
)
def test_keywords(schema: dict[str, Any], good: Any, bad: Any) -> None:
    assert fits(good, schema, ample())
    assert bad is None or not fits(bad, schema, ample())


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"$ref": "#/nowhere"},
        {"type": "strng"},
        {"pattern": "("},
        {"properties": 3},
        {"required": 3},
        "no schema",
        None,
    ],
)
def test_a_schema_that_cannot_be_followed_is_no_evidence(schema: Any) -> None:
    assert fits("a", schema, ample()) and fits({"a": [1]}, schema, ample())


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:9/x", "https://example.com/s.json", "file:///etc/passwd"]
)
def test_nothing_is_fetched_for_a_schema(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[Any] = []

    def fetch(*args: Any, **kwargs: Any) -> Any:
        fetched.append(args)
        raise OSError

    monkeypatch.setattr(socket, "socket", fetch)
    monkeypatch.setattr("urllib.request.urlopen", fetch)
    assert fits("a", {"$ref": address}, ample())
    assert fits("a", {"$schema": address, "$id": address, "allOf": [{"$ref": "other"}]}, ample())
    assert not fetched


def exploding(depth: int) -> dict[str, Any]:
    defs: dict[str, Any] = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(depth)}
    return {"$defs": {**defs, f"a{depth}": {}}, "$ref": "#/$defs/a0"}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (exploding(40), "a"),
        ({"pattern": r"^(\w|\w\w)*$"}, "a" * 60 + "!"),
        ({"patternProperties": {r"^(\w|\w\w)*$": False}}, {"a" * 60 + "!": 1}),
        ({"patternProperties": {r"^(\w|\w\w)*$": {}}, "additionalProperties": False}, {"a" * 60 + "!": 1}),
        ({"patternProperties": {r"^(\w|\w\w)*$": {}}, "unevaluatedProperties": False}, {"a" * 60 + "!": 1}),
    ],
)
def test_work_without_end_is_given_up(schema: dict[str, Any], value: Any) -> None:
    began = time.perf_counter()
    with pytest.raises(TooMuch):
        fits(value, schema, Allowance(0.05))
    assert time.perf_counter() - began < 1.0


def nested(piece: str, quantifier: str, times: int) -> str:
    return piece * times + (")" + quantifier) * times


SLOW_PATTERNS = [
    "(a|b)?" * 10_000,
    "(a|b)?" * 160,
    "(?<=a|bb)" * 100,
    "[a-z]{1,9}" * 100,
    "a|" * 499,
    "é|" * 499,
    "(?i)" + "k" * 900,
    r"\p{L}" * 200,
    r"[^\W\d_]" * 100,
    "(" * 400 + ")" * 400,
    nested("(?:a", "{1,9}", 30),
    nested("(?:a|", "{2}", 12),
    nested("(?:a|", "{2}", 6),
]


@pytest.mark.parametrize("pattern", SLOW_PATTERNS, ids=range(len(SLOW_PATTERNS)))
@pytest.mark.parametrize("of", ["pattern", "patternProperties", "additionalProperties"])
def test_no_pattern_takes_long_to_read(pattern: str, of: str) -> None:
    regex.purge()
    schema: Any = (
        {"pattern": pattern} if of == "pattern" else {"patternProperties": {pattern: {"minimum": 0}}}
    )
    schema |= {"additionalProperties": {}} if of == "additionalProperties" else {}
    used = time.thread_time()
    with contextlib.suppress(TooMuch):
        fits("!" if of == "pattern" else {"!": 1}, schema, Allowance(0.005))
    assert time.thread_time() - used < 0.1


def test_a_pattern_that_is_not_read_is_satisfied() -> None:
    for pattern in ("x" * 1_001, "(x)" * 7):
        assert fits("y", {"pattern": pattern}, ample())
        assert fits({"y": 1}, {"patternProperties": {pattern: False}}, ample())
        assert fits({"y": 1}, {"patternProperties": {pattern: {}}, "additionalProperties": False}, ample())
    for pattern in ("x" * 1_000, "(x)" * 6):
        assert not fits("y", {"pattern": pattern}, ample())


def numbered(count: int, make: Callable[[int], Any]) -> dict[str, Any]:
    return {str(n): make(n) for n in range(count)}


LARGE: list[tuple[Any, Callable[[int], Any]]] = [
    ("a", lambda n: {"$defs": numbered(n, lambda i: {"$id": f"x{i}"}), "$ref": "#/$defs/1"}),
    ("a", lambda n: {"$defs": numbered(n, lambda i: {"allOf": [{}]}), "$ref": "x"}),
    ("a", lambda n: {"$defs": numbered(n, lambda i: {"$anchor": f"x{i}"}), "$ref": "#x3"}),
    ({"0": 1}, lambda n: {"properties": numbered(n, lambda i: {"title": "x"}), "required": ["0"]}),
    ("a", lambda n: {"enum": [[1] * 9] * n}),
    ("a", lambda n: {"oneOf": [{"title": "x"}] * n}),
    ({"a": 1}, lambda n: {"patternProperties": numbered(n, lambda i: {})}),
    ("a", lambda n: {"type": ["integer"] * n}),
]


@pytest.mark.parametrize(("value", "make"), LARGE, ids=range(len(LARGE)))
@pytest.mark.parametrize("size", [300, 450, 30_000])
def test_no_schema_is_followed_for_long_on_the_loop(
    value: Any, make: Callable[[int], Any], size: int
) -> None:
    schema = make(size)
    used = time.thread_time()
    with contextlib.suppress(TooMuch):
        fits(value, schema, Allowance(0.005, nodes=1_000))
    assert time.thread_time() - used < 0.1


@pytest.mark.parametrize("schema", [{"items": {}}, {"items": {"title": "x"}}, {"uniqueItems": True}])
def test_no_value_is_gone_through_for_long_on_the_loop(schema: Any) -> None:
    with pytest.raises(TooMuch):
        fits([1] * 1_001, schema, Allowance(0.005, nodes=1_000))
    with pytest.raises(TooMuch):
        fits(["a" * 20_000], schema, Allowance(0.005, nodes=1_000))
    assert fits([1, 2, 3], schema, Allowance(0.005, nodes=1_000))


def test_many_choices_have_one_allowance() -> None:
    said = Said("Go on and on and on. " * 900, finish="stop")
    with pytest.raises(TooMuch):
        find(Look({"repetition"}), Asked({"messages": []}, "chat"), [said] * 3, None, Allowance(0.0))


def test_a_long_list_of_different_things_is_checked_at_once() -> None:
    assert fits([{"n": n} for n in range(4_900)], {"uniqueItems": True}, ample())


# ---- tool calls ----


@given(st.text(), st.text())
def test_only_offered_names_are_good(name: str, arguments: str) -> None:
    assert bad_call(offering(PERSON), (name, arguments)) or name == "look"
    assert bad_call(offering(None), (name, "{}")) is (name != "look")


@given(values)
def test_arguments_are_an_object_that_fits(value: Any) -> None:
    assert bad_call(offering({"type": "object"}), ("look", json.dumps(value))) is not isinstance(value, dict)


@given(st.dictionaries(st.text(min_size=1), values, min_size=1, max_size=3), st.data())
def test_arguments_that_are_cut_off_are_evidence(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = data.draw(st.integers(1, len(text) - 1))
    assert bad_call(offering({}), ("look", text[:cut])) and not bad_call(offering({}), ("look", text))


def test_no_arguments_are_none() -> None:
    assert not bad_call(offering({"type": "object"}), ("look", ""))
    assert bad_call(offering(PERSON), ("look", ""))


def test_one_bad_call_among_good_ones() -> None:
    assert bad_call(offering({}), ("look", "{}"), ("see", "{}"))


def test_a_call_that_was_required_and_not_made() -> None:
    named = {"type": "function", "function": {"name": "look"}}
    for choice in ("required", named):
        assert bad_call(offering({}, tool_choice=choice), text="It is sunny.")
        assert not bad_call(offering({}, tool_choice=choice), ("look", "{}"))
    for choice in ("auto", None, "none"):
        assert not bad_call(offering({}, tool_choice=choice), text="It is sunny.")


def test_another_tool_than_the_named_one() -> None:
    tools = [{"type": "function", "function": {"name": name}} for name in ("look", "see")]
    named = {"type": "function", "function": {"name": "see"}}
    asked = Asked({"messages": [], "tools": tools, "tool_choice": named}, "chat")
    assert bad_call(asked, ("look", "{}")) and not bad_call(asked, ("see", "{}"))


def test_a_call_that_was_left_in_the_text() -> None:
    text = '<tool_call>\n{"name": "look", "arguments": {}'
    assert bad_call(offering({}), text=text)
    assert not bad_call(offering({}, tool_choice="none"), text=text)
    assert not bad_call(Asked({"messages": []}, "chat"), text=text)
    assert not bad_call(offering({}), text="A <tool_call> tag marks a call.")


fields = ["messages", "tools", "tool_choice", "response_format", "max_tokens", "stop"]
shapes = st.recursive(
    values,
    lambda inner: (
        st.fixed_dictionaries(
            {},
            optional={
                name: inner
                for name in (
                    "type",
                    "function",
                    "name",
                    "parameters",
                    "json_schema",
                    "schema",
                    "role",
                    "content",
                    "text",
                )
            },
        )
        | st.lists(inner, max_size=2)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("field", fields)
@given(shapes)
def test_a_body_of_any_shape_is_read(field: str, value: Any) -> None:
    body = {"messages": [{"role": "user", "content": "Hello"}], field: value}
    for said in (
        Said("text", calls=[Call("function", "look", "{}")], finish="stop"),
        Said("text " * 60, finish="length"),
    ):
        for evidence in get_args(Evidence):
            find(Look({evidence}), Asked(body, "chat"), [said], -0.1, ample())
