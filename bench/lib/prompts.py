"""Chat requests of mixed lengths, none of which begins like another: the prefix cache finds nothing."""

from __future__ import annotations

import json
import random

SHORTEST, LONGEST = 32, 200
"""Words of a prompt; some 64 to 256 tokens of the embedded model with what its chat template adds."""
SEED = 7

_VOCABULARY = """
river bridge stone winter market letter garden window silver engine harbour teacher morning village paper doctor
forest mountain summer candle kitchen station island writer carpet valley signal copper butter ladder painter meadow
thunder pocket anchor basket castle farmer hammer needle orange pencil rabbit saddle tunnel walk carry open follow
answer gather borrow finish listen measure notice polish remember travel wonder quiet narrow bright heavy gentle honest
early simple broken hollow golden steady distant careful ancient
"""
_WORDS = _VOCABULARY.split()


def bodies(turn: int, count: int, *, model: str, tokens: int) -> list[str]:
    """`count` streamed requests for exactly `tokens` tokens each.

    The lengths are the same in every turn and come in another order; the words are others.

    Args:
        turn: another number gives other prompts; the same number the same.
    """
    draw = random.Random(f"{SEED} {turn} {count}")
    spread = max(count - 1, 1)
    lengths = [SHORTEST + (LONGEST - SHORTEST) * at // spread for at in range(count)]
    draw.shuffle(lengths)
    return [
        json.dumps(
            {
                "model": model,
                "messages": [{"role": "user", "content": _text(draw, length)}],
                "temperature": 0,
                "max_tokens": tokens,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )
        for length in lengths
    ]


def _text(draw: random.Random, length: int) -> str:
    words = draw.choices(_WORDS, k=length)
    for at in range(9, length, 10):
        words[at] += "."
    return " ".join(words)
