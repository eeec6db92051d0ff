"""Korean names of two to four syllables, put together from common surnames and syllables."""

from __future__ import annotations

from random import Random

_SURNAMES = (
    "김이박최정강조윤장임한오서신권황안송전홍유고문양손배백허남심노하곽성차주우구나민진지엄채원천방공현함변염여추도소석선설마"
    "길연위표명기반왕금옥육인맹제모탁국"
)
_DOUBLE = ("남궁", "황보", "제갈", "선우", "독고", "사공", "서문", "동방")
_FIRST = "민서지도하예수현준은유재성태승영정동상진경혜미나선희창규병철기용인소윤시주채다가온아한찬건우연효"
_LAST = "준우윤서연은현민호진영수희경아인빈원훈석철환규란숙자미정선혁욱재성율린온찬결솔혜주태나라"


def korean_name(rng: Random) -> str:
    """Mostly three syllables, as in life."""
    shape = rng.random()
    given = rng.choice(_FIRST) + rng.choice(_LAST)
    if shape < 0.12:
        return rng.choice(_SURNAMES) + rng.choice(_FIRST + _LAST)
    if shape < 0.20:
        return rng.choice(_DOUBLE) + given
    if shape < 0.24:
        return rng.choice(_DOUBLE) + rng.choice(_LAST)
    if shape < 0.27:
        return rng.choice(_SURNAMES) + given + rng.choice(_LAST)
    return rng.choice(_SURNAMES) + given


def korean_names(rng: Random, count: int) -> list[str]:
    """`count` different ones."""
    names: dict[str, None] = {}
    while len(names) < count:
        names[korean_name(rng)] = None
    return list(names)
