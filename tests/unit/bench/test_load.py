"""What the load generator puts into its requests."""

from __future__ import annotations

from itertools import islice

from bench.lib.load import FRESH, words


def test_no_request_has_the_word_of_another() -> None:
    made = list(islice(words(), 50_000))
    assert len(set(made)) == len(made)
    assert {len(word) for word in made} == {len(FRESH)}
