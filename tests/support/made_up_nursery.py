"""Nurseries whose detector, or whose worker, is the test's own: everything around it is real."""

from __future__ import annotations

import sys
from textwrap import indent

_DETECTOR = """
import os, re, sys, threading, time, types
made = types.ModuleType("weighbridge.masking.detector")
class Detector:
    version, layers, missing, names = "made up", ("one",), {"two": "no model"}, frozenset({"ko"})
    def __init__(self, *told):
LOAD
    def find(self, text):
FIND
made.Detector = Detector
sys.modules["weighbridge.masking.detector"] = made
"""

_WORKER = """
from weighbridge.masking import wire, worker
def serve(source, sink, detector):
    def read():
        (length,) = wire.LENGTH.unpack(source.read(4))
        return wire.question(source.read(length))
    while True:
        task = read()
        sink.write(ANSWER)
        sink.flush()
worker.serve = serve
"""

_MAIN = """
from weighbridge.masking import nursery
nursery.main()
"""


def with_detector(*, find: str = "return []", load: str = "pass") -> tuple[str, ...]:
    """A command whose detector has these statements in its methods `find(self, text)` and `__init__`."""
    return _program(_detector(find, load))


def with_worker(answer: str) -> tuple[str, ...]:
    """A command whose workers answer every task with the bytes of the expression `answer`."""
    return _program(_detector("return []", "pass") + _WORKER.replace("ANSWER", answer))


def _detector(find: str, load: str) -> str:
    return _DETECTOR.replace("LOAD", indent(load, " " * 8)).replace("FIND", indent(find, " " * 8))


def _program(source: str) -> tuple[str, ...]:
    return (sys.executable, "-c", source + _MAIN)
