"""The messages between the gateway, the nursery and a detector process, in msgpack.

Over a worker's pipes each stands behind a four-byte length: text goes in, only places and types come out. Over the
nursery's line, which keeps messages apart, they go bare: no text goes that way.
"""

from __future__ import annotations

import struct

import msgspec

from weighbridge.masking.layers.base import LayerOptions

LENGTH = struct.Struct(">I")
MAX_FRAME = 256 * 1024 * 1024
"""Bytes. Far above any legal message; a longer one is nonsense."""


class Setup(msgspec.Struct, frozen=True, tag=True):
    """First message to the nursery, with the gateway's process file: the layers wanted beyond those that always look,
    and what they are told."""

    layers: tuple[str, ...] = ()
    options: LayerOptions = LayerOptions()


class Task(msgspec.Struct, frozen=True, tag=True):
    """Texts to look at. The child's kernel ends it when `limit_s` seconds are over."""

    id: int
    limit_s: float
    texts: tuple[str, ...]


class Ready(msgspec.Struct, frozen=True, tag=True):
    """A worker is there, and its process file with it. For the fields see `detector.Detector`."""

    detector_version: str
    layers: tuple[str, ...] = ()
    missing: dict[str, str] = {}
    names: frozenset[str] = frozenset()


class Found(msgspec.Struct, frozen=True, tag=True):
    """For each text of task `id`, merged spans in code points of that text."""

    id: int
    spans: list[list[tuple[int, int, str]]]


class Failed(msgspec.Struct, frozen=True, tag=True):
    """A detector raised on task `id`, or, as number 0, there is no worker. `error` is the exception's class name, never
    its message."""

    id: int
    error: str


FORK = b"fork"
"""To the nursery, with the reading end of the tasks, the writing end of the answers and a line for the reply."""

Question = Setup | Task
Answer = Ready | Found | Failed

_encoder = msgspec.msgpack.Encoder()
_questions: msgspec.msgpack.Decoder[Question] = msgspec.msgpack.Decoder(Question)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


def packed(message: Question | Answer) -> bytes:
    return _encoder.encode(message)


def frame(message: Question | Answer) -> bytes:
    body = packed(message)
    return LENGTH.pack(len(body)) + body


def question(body: bytes) -> Question:
    """Raises msgspec.DecodeError when `body` is no question."""
    return _questions.decode(body)


def answer(body: bytes) -> Answer:
    """Raises msgspec.DecodeError when `body` is no answer."""
    return _answers.decode(body)
