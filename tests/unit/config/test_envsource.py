"""The environment: every variable finds its setting or is refused by name."""

from __future__ import annotations

from typing import get_origin

import pytest

from weighbridge.config.envsource import reachable, read_env, variable
from weighbridge.config.settings import Settings, load_settings
from weighbridge.config.shape import leaves


def said(env: dict[str, str]) -> list[str]:
    return [str(problem) for problem in read_env(Settings, env).problems]


def test_every_field_has_a_variable_that_reaches_it() -> None:
    reached = 0
    for leaf in leaves(Settings):
        if "[]" in leaf.path:
            continue
        path = tuple("local-70b" if step == "*" else step for step in leaf.path)
        empty = "{}" if get_origin(leaf.slot.type) is dict else "[]"
        if leaf.path[:2] == ("commercial", "endpoints"):
            # Their names are free, so that no variable can hold one.
            path, empty = path[:2], "{}"
        found = read_env(Settings, {variable(path): empty})
        assert found.problems == []
        assert list(found.names) == [path]
        assert path in reachable(Settings, leaf.path)
        reached += 1
    assert reached >= 50


@pytest.mark.parametrize(
    ("name", "guess"),
    [
        ("WEIGHBRIDGE_SERVER_PORT", "; did you mean WEIGHBRIDGE_SERVER__PORT?"),
        ("WEIGHBRIDGE_SERVER__PRT", "; did you mean WEIGHBRIDGE_SERVER__PORT?"),
        ("weighbridge_server__port", "; did you mean WEIGHBRIDGE_SERVER__PORT?"),
        ("WEIGHBRIDGE_TIERS__LOCAL-8B__SEED", "; did you mean WEIGHBRIDGE_TIERS__LOCAL_8B__SEED?"),
        ("WEIGHBRIDGE_SERVER__PORT__X", "; did you mean WEIGHBRIDGE_SERVER__PORT?"),
        ("WEIGHBRIDGE_COMMERCIAL__ENDPOINT", "; did you mean WEIGHBRIDGE_COMMERCIAL__ENDPOINTS?"),
        ("WEIGHBRIDGE_COMMERCIAL__ENDPOINTS__B__URL", "; did you mean WEIGHBRIDGE_COMMERCIAL__ENDPOINTS?"),
        ("WEIGHBRIDGE_QQQ", ""),
        ("WEIGHBRIDGE_", ""),
        ("WEIGHBRIDGE_AUTH__KEYS__0__ID", "; did you mean WEIGHBRIDGE_AUTH__KEYS?"),
    ],
)
def test_a_variable_without_a_setting_is_refused(name: str, guess: str) -> None:
    (line,) = said({name: "1"})
    assert line.startswith(f"environment: {name}: no setting has this name")
    assert line.removeprefix(f"environment: {name}: no setting has this name") == guess


def test_other_variables_and_empty_ones_are_left_alone() -> None:
    found = read_env(Settings, {"PATH": "/bin", "WEIGHBRIDGE_SERVER__PORT": "", "WEIGHBRIDGE_CONFIG": "x"})
    assert (found.tree, found.problems) == ({}, [])


def test_one_variable_refines_what_another_gave_as_json() -> None:
    found = read_env(
        Settings,
        {"WEIGHBRIDGE_SERVER__PORT": "2", "WEIGHBRIDGE_SERVER": '{"port": 1, "host": "::1"}'},
    )
    assert found.tree == {"server": {"port": "2", "host": "::1"}}


@pytest.mark.parametrize("text", ["{", "[]", "5", '"x"', '{"port": NaN}', "[" * 100_000])
def test_a_section_must_be_a_json_object(text: str) -> None:
    assert said({"WEIGHBRIDGE_SERVER": text}) == ["environment: WEIGHBRIDGE_SERVER: must be a JSON object"]


def test_a_list_must_be_a_json_list() -> None:
    assert said({"WEIGHBRIDGE_AUTH__KEYS": '{"id": 1}'}) == [
        "environment: WEIGHBRIDGE_AUTH__KEYS: must be a JSON list"
    ]


def test_null_takes_an_optional_value_away() -> None:
    made = load_settings(env={"HOME": "/h", "WEIGHBRIDGE_TIERS__LOCAL_8B__TOOL_PARSER": "null"})
    assert made.tiers["local-8b"].tool_parser is None


SERVICE_LINKS = {
    "WEIGHBRIDGE_SERVICE_HOST": "10.0.0.1",
    "WEIGHBRIDGE_SERVICE_PORT": "8080",
    "WEIGHBRIDGE_SERVICE_PORT_HTTP": "8080",
    "WEIGHBRIDGE_PORT": "tcp://10.0.0.1:8080",
    "WEIGHBRIDGE_PORT_8080_TCP": "tcp://10.0.0.1:8080",
    "WEIGHBRIDGE_PORT_8080_TCP_PROTO": "tcp",
    "WEIGHBRIDGE_PORT_8080_TCP_PORT": "8080",
    "WEIGHBRIDGE_PORT_8080_TCP_ADDR": "10.0.0.1",
    "WEIGHBRIDGE_ADMIN_SERVICE_HOST": "10.0.0.2",
    "WEIGHBRIDGE_ADMIN_PORT": "tcp://10.0.0.2:8081",
}


def test_variables_of_kubernetes_services_are_left_alone() -> None:
    assert said(SERVICE_LINKS) == []
    alone = {"WEIGHBRIDGE_PORT": "8080"}
    assert len(said(alone)) == 1, "without the service's host it is a misspelt setting"
    assert len(said({**SERVICE_LINKS, "WEIGHBRIDGE_SERVER_PORT": "1"})) == 1
