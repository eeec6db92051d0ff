"""How far a look around a place goes: some characters, and on to the next white space if that is near."""

from __future__ import annotations


def back_to_space(text: str, place: int, reach: int, far: int) -> int:
    """The place `reach` characters before `place`, and at most `far` more to where white space ends."""
    near = max(0, place - reach)
    last = max(0, near - far)
    while near > last and not text[near - 1].isspace():
        near -= 1
    return near


def on_to_space(text: str, place: int, reach: int, far: int) -> int:
    """The same onwards: to where white space begins."""
    near = min(len(text), place + reach)
    last = min(len(text), near + far)
    while near < last and not text[near].isspace():
        near += 1
    return near
