"""A tier's slots that several replicas share: what one replica says of its own to Redis, and what it hears."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec

from weighbridge.state.redis_terms import RedisAway, Script
from weighbridge.state.slot_script import SLOTS

Claim = tuple[str, int, int, int, tuple[int, ...]]
"""A request for a slot: its name, its priority (a lower number goes first), milliseconds since it was made, the place
it had best be on and those it had best not be on, as positions among the statement's places from 1 (0: none)."""

SETTLE_SHARE: Final = 0.5
"""Share of a lease after which Redis grants again, if it has lost everything and a replica has not come back."""


class Link(Protocol):
    """What is needed of a `RedisLink`."""

    @property
    def available(self) -> bool | None: ...
    @property
    def member(self) -> str: ...
    def name(self, tag: str, *parts: str) -> str: ...
    def follow(self, changed: Callable[[bool], None]) -> None: ...
    def listen(self, channel: str, heard: Callable[[str], None]) -> None: ...
    async def run(self, script: Script, keys: Sequence[str], args: Sequence[str]) -> Any: ...
    def distrust(self, why: Literal["garbage"]) -> RedisAway: ...
    def before_closing(self, step: Callable[[], Any]) -> None: ...


class StatedPlace(msgspec.Struct, frozen=True, array_like=True):
    """A place as it is stated: the name that all replicas have for it, its slots over all of them, and whether this
    replica takes slots on it now."""

    key: str
    slots: int
    takes: bool


class Statement(msgspec.Struct, frozen=True):
    """What a replica says.

    Args:
        whole: whether `held` and `claims` are all there is; else `gone` and `claims` are what has changed.
        replicas: how many of them it last knew of.
        held: the leases it has, for each of `places`.
        gone: claims taken back, and the place of the lease; "" where it is not known to have one.
        leaves: it says good-bye.
    """

    places: tuple[StatedPlace, ...]
    whole: bool = False
    replicas: int = 1
    held: tuple[tuple[str, ...], ...] = ()
    gone: tuple[tuple[str, str], ...] = ()
    claims: tuple[Claim, ...] = ()
    leaves: bool = False


class Answer(msgspec.Struct, frozen=True):
    """What Redis says to a statement.

    Args:
        kind: `restate`: nothing was done, because a whole statement is needed.
        settled: whether it has heard of all leases there are, and grants.
        replicas: how many are alive.
        granted: claims of this replica that have a lease now, with the place.
        busy: leases by place, over all replicas.
        waiting: claims that wait, over all replicas.
    """

    kind: Literal["ok", "restate"]
    settled: bool = False
    replicas: int = 1
    granted: tuple[tuple[str, str], ...] = ()
    busy: Mapping[str, int] = msgspec.field(default_factory=dict)
    waiting: int = 0


class Listener(Protocol):
    """Who holds the slots of this replica. None of these may wait or raise."""

    def link_changed(self, up: bool) -> None:
        """Redis is there, or is taken to be away."""
        ...

    def lease_granted(self, claim: str, place: str) -> None:
        """A claim that waited has a lease now."""
        ...

    def news(self) -> None:
        """Redis has lost everything, or has heard of everything again: state all there is."""
        ...


class SlotLeases:
    """This replica's voice at the slots of one tier.

    Args:
        link: the connection.
        tier: the tier's name.
        lease_s: seconds that a lease lasts unless it is stated again.
        replicas: gateways that are assumed to share the tier until Redis has told.
    """

    def __init__(self, link: Link, tier: str, lease_s: float, replicas: int) -> None:
        self._link = link
        self._tag = f"slots:{tier}"
        self.lease_s: Final = lease_s
        self.replicas: Final = replicas
        self.member: Final = link.member
        self._number = 0
        self._epoch = ""

    @property
    def available(self) -> bool | None:
        """Whether Redis is there; None while it was never asked."""
        return self._link.available

    def follow(self, listener: Listener) -> None:
        def heard(text: str) -> None:
            claim, _, place = text.partition(" ")
            listener.lease_granted(claim, place)

        self._link.listen(self._name(), lambda _: listener.news())
        self._link.listen(f"{self._name()}:{self.member}", heard)
        self._link.follow(listener.link_changed)

    def before_closing(self, step: Callable[[], Any]) -> None:
        """Await `step()` before the connection is closed."""
        self._link.before_closing(step)

    async def state(self, said: Statement) -> Answer:
        """Tell Redis. One statement at a time, in order.

        Raises:
            RedisAway: it did not answer, or made no sense; whether it has heard is not known.
        """
        self._number += 1
        keys = [self._name(part) for part in ("meta", "members", "alive", "waiting")]
        keys += [self._name("leases", place.key) for place in said.places]
        lease_ms = round(self.lease_s * 1000)
        body = {
            "me": self.member,
            "number": self._number,
            "epoch": self._epoch,
            "channel": self._name(),
            "lease_ms": lease_ms,
            "settle_ms": round(lease_ms * SETTLE_SHARE),
            **msgspec.to_builtins(said),
        }
        reply = await self._link.run(SLOTS, keys, [msgspec.json.encode(body).decode()])
        try:
            answer, self._epoch = _read(reply, said)
        except (ValueError, TypeError, IndexError):
            raise self._link.distrust("garbage") from None
        return answer

    def _name(self, *parts: str) -> str:
        return self._link.name(self._tag, *parts)


def _read(reply: Any, said: Statement) -> tuple[Answer, str]:
    """Raises: ValueError, TypeError, IndexError: not what the script returns."""
    kind, epoch = reply[0], reply[1]
    if not isinstance(epoch, str) or kind not in ("ok", "restate"):
        raise ValueError(kind)
    if kind == "restate":
        return Answer("restate"), epoch
    _, _, settled, replicas, granted, busy, waiting = reply
    if not all(isinstance(text, str) for text in granted):
        raise TypeError
    for number in (settled, replicas, waiting, *busy):
        if type(number) is not int or number < 0:
            raise TypeError
    return (
        Answer(
            "ok",
            settled == 1,
            max(1, replicas),
            tuple(zip(granted[::2], granted[1::2], strict=True)),
            {place.key: count for place, count in zip(said.places, busy, strict=True)},
            waiting,
        ),
        epoch,
    )
