"""The roles of admin keys, from the one that may least to the one that may everything."""

from __future__ import annotations

from typing import Final, Literal, get_args

Role = Literal["viewer", "auditor", "operator", "admin"]

ROLES: Final[tuple[Role, ...]] = get_args(Role)
"""Each may what those before it may, and more."""


def may(role: Role, least: Role) -> bool:
    """Whether a key of `role` may do what takes `least`."""
    return ROLES.index(role) >= ROLES.index(least)
