"""Every way a YAML file can be wrong is one clear line; what is right is read as it stands, with its lines."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.config import yamlsource
from weighbridge.config.problems import ConfigProblems, Problem
from weighbridge.config.yamlsource import MAX_BYTES, MAX_DEPTH, MAX_PROBLEMS, parse_yaml, read_yaml, scan_yaml


def refused(raw: bytes) -> str:
    with pytest.raises(ConfigProblems) as caught:
        parse_yaml(raw, "f.yaml")
    assert len(caught.value.problems) == 1
    assert "\n" not in str(caught.value)
    return str(caught.value)


REFUSED = {
    "empty": (b"", "f.yaml: is empty"),
    "comment only": (b"# nothing\n", "f.yaml: is empty"),
    "null": (b"~\n", "f.yaml: is empty"),
    "list": (b"- a\n", "f.yaml:1:1: must be a mapping (lines of `key: value`) at the top"),
    "text": (b"\nabc\n", "f.yaml:2:1: must be a mapping (lines of `key: value`) at the top"),
    "duplicate": (b"a: 1\nb:\n  c: 1\n  c: 2\n", "f.yaml:4:3: b.c: duplicate key, first given on line 3"),
    "duplicate in flow": (b"a: {b: 1, b: 2}\n", "f.yaml:1:11: a.b: duplicate key, first given on line 1"),
    "duplicate, quoted once": (b'a: 1\n"a": 2\n', "f.yaml:2:1: a: duplicate key, first given on line 1"),
    "two documents": (b"a: 1\n---\nb: 1\n", "f.yaml:2:1: holds more than one YAML document"),
    "tab": (b"a:\n\tb: 1\n", "f.yaml:2:1: is not valid YAML: indent with spaces, not with a tab"),
    "not utf-8": (b"a: 1\nb: \xff\n", "f.yaml:2:4: is not UTF-8 text"),
    "control character": (b"a: 1\nb: \x07\n", "f.yaml:2:4: holds a character that is not text (U+0007)"),
    "escaped nul": (b'a:\n  b: "x\\0"\n', "f.yaml:2:6: a.b: holds a character that is not text (U+0000)"),
    "anchor": (b"a: &x 1\n", "f.yaml:1:4: a: anchors and aliases (& and *) are not supported"),
    "anchor on a list": (b"a: &x [1]\n", "f.yaml:1:4: a: anchors and aliases (& and *) are not supported"),
    "alias": (b"a: 1\nb: *x\n", "f.yaml:2:4: b: anchors and aliases (& and *) are not supported"),
    "tag on text": (b"a: !!str 1\n", "f.yaml:1:4: a: tags (!) are not supported"),
    "tag on a mapping": (b"a: !!python/object:os.x {}\n", "f.yaml:1:4: a: tags (!) are not supported"),
    "key is a list": (b"? [a]\n: b\n", "f.yaml:1:3: a key must be plain text"),
    "empty key": (b'a:\n  "": b\n', "f.yaml:2:3: a: a key must not be empty"),
    "long number": (b"a: " + b"9" * 5000, "f.yaml:1:4: a: this number is too long"),
    "too large": (b"a: " + b"x" * MAX_BYTES, f"f.yaml: is larger than {MAX_BYTES} bytes"),
}


@pytest.mark.parametrize(("raw", "line"), REFUSED.values(), ids=REFUSED)
def test_refused_with_one_line(raw: bytes, line: str) -> None:
    assert refused(raw) == line


@pytest.mark.parametrize(
    "raw", [b"a: [1\n", b"a: 'b\n", b"a: b: c\n", b"a: }\n", b'"\\ud800": 1\n', b"%YAML 9.9\n---\na: 1\n"]
)
def test_syntax_errors_name_a_line(raw: bytes) -> None:
    assert refused(raw).startswith("f.yaml:")
    assert "is not valid YAML" in refused(raw)


def test_a_bomb_of_aliases_is_not_read_to_its_end() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    with pytest.raises(ConfigProblems) as caught:
        parse_yaml("\n".join(lines).encode(), "f.yaml")
    assert len(caught.value.problems) == MAX_PROBLEMS
    assert str(caught.value.problems[0]) == (
        "f.yaml:1:5: a0: anchors and aliases (& and *) are not supported"
    )


def test_several_faults_are_named_at_once_and_the_rest_is_read() -> None:
    raw = b"a: 1\nb: &x {c: 1, c: 2}\na:\n  d: [2]\nl: [1, *x, !!str 3]\n'e': " + b"9" * 100 + b"\n"
    found = scan_yaml(raw, "f.yaml")
    assert [str(problem) for problem in found.problems] == [
        "f.yaml:2:4: b: anchors and aliases (& and *) are not supported",
        "f.yaml:2:14: b.c: duplicate key, first given on line 2",
        "f.yaml:3:1: a: duplicate key, first given on line 1",
        "f.yaml:5:8: l[1]: anchors and aliases (& and *) are not supported",
        "f.yaml:5:12: l[2]: tags (!) are not supported",
        "f.yaml:6:6: e: this number is too long",
    ]
    assert found.data == {"a": 1, "b": {"c": 1}, "l": [1, None, 3], "e": None}
    assert found.unread == {("l", 1), ("e",)}
    # What ends the reading comes last.
    for more, lines in ((b"a: 2\n? [k]\n: v\n", [2, 3]), (b"b: &y 1\nc: [\n", [2, 4])):
        with pytest.raises(ConfigProblems) as caught:
            scan_yaml(b"a: 1\n" + more, "f.yaml")
        assert [problem.line for problem in caught.value.problems] == lines


@pytest.mark.parametrize("opening", ["[", "{a: "])
def test_deep_nesting_is_refused(opening: str) -> None:
    said = refused(f"a: {opening * (MAX_DEPTH + 5)}".encode())
    assert said.endswith(f"is nested deeper than {MAX_DEPTH} levels")
    refused(f"a: {opening * 100_000}".encode())


def test_numbers_and_words_follow_yaml_1_2() -> None:
    read = parse_yaml(
        b"i: 12\nneg: -3\nbig: 8_388_608\nf: 0.45\nexp: 1e-3\ndot: .5\ninf: .inf\nnan: .nan\nt: true\nfalse_: False\n"
        b"n: null\nnone:\nq: '12'\nno: no\non: on\noct: 010\nhex: 0x10\ntime: 12:30\ndate: 2026-01-01\n42: x\n",
        "f.yaml",
    ).data
    nan = read.pop("nan")
    assert math.isnan(nan)
    assert read == {
        "i": 12,
        "neg": -3,
        "big": 8388608,
        "f": 0.45,
        "exp": 0.001,
        "dot": 0.5,
        "inf": math.inf,
        "t": True,
        "false_": False,
        "n": None,
        "none": None,
        "q": "12",
        "no": "no",
        "on": "on",
        "oct": "010",
        "hex": "0x10",
        "time": "12:30",
        "date": "2026-01-01",
        "42": "x",
    }
    assert type(read["exp"]) is float


def test_lines_of_keys_items_and_absent_places() -> None:
    read = parse_yaml(b"\xef\xbb\xbfa:\n  - b: 1\n    c: 2\n  - 3\nd: {e: [4,\n 5]}\n", "f.yaml")
    assert read.data == {"a": [{"b": 1, "c": 2}, 3], "d": {"e": [4, 5]}}
    assert read.place_of(("a",)) == (1, 1)
    assert read.place_of(("a", 0, "c")) == (3, 5)
    assert read.place_of(("a", 1)) == (4, 5)
    assert read.place_of(("d", "e", 1)) == (6, 2)
    assert read.place_of(("d", "e", 7, "x")) == (5, 5), "the nearest part that is there"
    assert read.place_of(("zzz",)) == (1, 1)
    assert str(read.problem(("a", 0, "c"), "is odd")) == "f.yaml:3:5: a[0].c: is odd"


def test_what_is_no_readable_file(tmp_path: Path) -> None:
    def said(path: Path) -> str:
        with pytest.raises(ConfigProblems) as caught:
            read_yaml(path)
        return str(caught.value)

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert said(tmp_path / "none.yaml") == f"{tmp_path}/none.yaml: no such file"
    assert said(tmp_path) == f"{tmp_path}: is a folder"
    assert said(pipe) == f"{pipe}: is no regular file"
    assert said(loop).startswith(f"{loop}: cannot be read: ")
    assert said(Path("a\0b")) == "a\\x00b: cannot be read: not a usable path"


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "real.yaml").write_text("a: 1\n")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "real.yaml")
    assert read_yaml(tmp_path / "link.yaml").data == {"a": 1}


def test_a_problem_is_always_one_line() -> None:
    said = str(Problem("a\nb.yaml", 3, "x\ry", "z\u2028w"))
    assert said == "a\\nb.yaml:3: x\\ry: z\\u2028w"
    assert str(Problem("f", None, "", "m")) == "f: m"
    assert str(Problem("f", 3, "", "m", 7)) == "f:3:7: m"


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=200),
        st.text(alphabet="ab:{}[]&*!?-'\"\n\t #|>%0.~,\\", max_size=80).map(str.encode),
    )
)
def test_any_bytes_are_read_or_refused_with_one_line(raw: bytes) -> None:
    try:
        read = parse_yaml(raw, "f.yaml")
    except ConfigProblems as exc:
        assert all(str(problem).isprintable() for problem in exc.problems)
        assert 1 <= len(exc.problems) <= MAX_PROBLEMS
    else:
        assert isinstance(read.data, dict)


_text = st.text(
    alphabet=st.characters(
        codec="utf-8", exclude_categories=["Cc", "Cn", "Cs"], exclude_characters="\u2028\u2029\ufeff"
    ),
    min_size=1,
    max_size=12,
)
_leaf = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False, allow_infinity=False),
    _text,
)
_tree = st.recursive(
    _leaf,
    lambda held: st.one_of(st.lists(held, max_size=4), st.dictionaries(_text, held, max_size=4)),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(_text, _tree, min_size=1, max_size=5), st.sampled_from([None, 2]))
def test_what_was_written_is_read_back(data: dict[str, object], indent: int | None) -> None:
    raw = json.dumps(data, ensure_ascii=False, indent=indent)  # JSON is YAML, and quotes all text
    read = parse_yaml(raw.encode(), "f.yaml")
    assert read.data == data
    lines = raw.split("\n")
    assert all(1 <= column <= len(lines[line - 1]) for line, column in read.places.values())


def test_the_parser_without_the_c_library_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = b"a: 1\nb:\n  - 'x'\n  - {c: 0.5, d: yes}\ne: >\n  folded\n  text\n"
    fast = parse_yaml(raw, "f.yaml")
    monkeypatch.setattr(yamlsource, "_LOADER", yaml.SafeLoader)
    assert parse_yaml(raw, "f.yaml") == fast
    for bad, line in REFUSED.values():
        assert refused(bad) == line
