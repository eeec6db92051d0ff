"""A link to a real Redis whose calls take no turn of the event loop, for tests in virtual time."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, Literal

import redis

from weighbridge.state.redis_terms import RedisAway, Script


class BlockingLink:
    """What `SlotLeases` needs of a `RedisLink`.

    Args:
        url: of the Redis.
        prefix: of the keys, the test's own.
    """

    def __init__(self, url: str, prefix: str) -> None:
        self.available: bool | None = True
        self.member = secrets.token_hex(6)
        self._prefix = prefix
        self._redis = redis.Redis.from_url(url, decode_responses=True)
        self._ears = self._redis.pubsub(ignore_subscribe_messages=True)
        self._heard: dict[str, Callable[[str], None]] = {}
        self._followers: list[Callable[[bool], None]] = []

    def name(self, tag: str, *parts: str) -> str:
        return ":".join((f"{{{self._prefix}:{tag}}}", *parts))

    def follow(self, changed: Callable[[bool], None]) -> None:
        self._followers.append(changed)

    def listen(self, channel: str, heard: Callable[[str], None]) -> None:
        self._heard[channel] = heard
        self._ears.subscribe(channel)

    def before_closing(self, step: Callable[[], Any]) -> None:
        pass

    def distrust(self, why: Literal["garbage"]) -> RedisAway:
        self.set(False)
        return RedisAway(why)

    def set(self, up: bool) -> None:
        """Come or go."""
        self.available = up
        for changed in self._followers:
            changed(up)

    async def run(self, script: Script, keys: Sequence[str], args: Sequence[str]) -> Any:
        if not self.available:
            raise RedisAway("timeout")
        return self._redis.eval(script.text, len(keys), *keys, *args)

    def deliver(self) -> None:
        """Hand out the messages that have come."""
        while (message := self._ears.get_message()) is not None:
            self._heard[message["channel"]](message["data"])

    def close(self) -> None:
        self._ears.close()
        self._redis.close()
