"""A long whole answer: what is not restored is not even read, and nobody else waits for it."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest

from weighbridge.masking.restore import restore_completion
from weighbridge.masking.vault import Mint

MINT = Mint(b"k" * 32)
TOKEN = MINT.placeholder("PHONE", '010-"2345"-6789')
VAULT = MINT.vault(False)


def answer(content: str, tokens: int) -> bytes:
    likely = [{"token": f"t{n}", "logprob": -1.25, "bytes": [97, 98]} for n in range(20)]
    told = [{"token": "abc", "logprob": -0.5, "bytes": [97], "top_logprobs": likely} for _ in range(tokens)]
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": content},
        "logprobs": {"content": told},
        "finish_reason": "stop",
    }
    return json.dumps({"id": "x", "choices": [choice, choice], "usage": {"total_tokens": 3}}).encode()


def test_all_but_the_texts_stays_as_it_was() -> None:
    given = answer(f"Call {TOKEN}.", 2)
    made, expected = json.loads(restore_completion(VAULT, given)), json.loads(given)
    for choice in expected["choices"]:
        choice["message"]["content"] = 'Call 010-"2345"-6789.'
    assert made == expected
    # Not even the spelling of a number changes.
    assert b"1.50" in restore_completion(VAULT, given.replace(b"1.25", b"1.50"))


@pytest.mark.parametrize(
    "choices", ["3", '"x"', "null", "[1, null, [2], {}]", '[{"message": 3}, {"message": null}]']
)
def test_an_odd_answer_is_left_alone(choices: str) -> None:
    given = f'{{"id": "x", "choices": {choices}}}'
    assert json.loads(restore_completion(VAULT, given.encode())) == json.loads(given)


def test_logprobs_cost_less_than_reading_them() -> None:
    given = answer(f"Call {TOKEN}.", 2_000)

    def seconds(work: Any) -> float:
        return min(_seconds(work) for _ in range(5))

    def read() -> None:
        msgspec.json.encode(msgspec.json.decode(given))

    assert seconds(lambda: restore_completion(VAULT, given)) < seconds(read) / 2


def _seconds(work: Any) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun
