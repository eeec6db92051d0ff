"""Where this user's files go."""

from __future__ import annotations

import os

import pytest

from weighbridge.config.folders import cache_folder


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"XDG_CACHE_HOME": "/var/cache/me"}, "/var/cache/me/weighbridge"),
        ({"XDG_CACHE_HOME": "relative"}, "~/.cache/weighbridge"),
        ({"XDG_CACHE_HOME": ""}, "~/.cache/weighbridge"),
        ({}, "~/.cache/weighbridge"),
    ],
)
def test_the_cache_folder_is_the_users(env: dict[str, str], expected: str) -> None:
    assert str(cache_folder(env)) == os.path.expanduser(expected)
