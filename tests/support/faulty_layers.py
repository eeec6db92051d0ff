"""Detectors with all their layers, of which a text can have one go wrong: `break-LAYER-FAULT` in it does."""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path

NETWORK_EVENTS = (
    *("socket.connect", "socket.getaddrinfo", "socket.gethostby", "socket.getnameinfo", "socket.sendto"),
    *(
        "socket.bind",
        "subprocess.Popen",
        "os.exec",
        "os.posix_spawn",
        "os.system",
        "os.spawn",
        "urllib.Request",
    ),
    *(
        "http.client.connect",
        "ftplib.connect",
        "smtplib.connect",
        "poplib.connect",
        "imaplib.open",
        "webbrowser",
    ),
)
"""Beginnings of the audit events of Python that tell of a connection, a look-up or another program."""

FAULTS: dict[str, str] = {
    "raise": "raise ValueError(text)",
    "exit": "raise SystemExit(text)",
    "hang": "time.sleep(60)",
    "spin": "while True: pass",
    "kill": "os.kill(os.getpid(), 9)",
    "none": "return None",
    "words": "return [('a', 'b', 'c')]",
    "pairs": "return [(0, 1)]",
    "unknown": "return [(0, 1, 'NOBODY')]",
    "backwards": "return [(5, 2, 'PHONE')]",
    "outside": "return [(0, 10 ** 9, 'PHONE')]",
    "negative": "return [(-5, -1, 'PHONE')]",
    "empty": "return [(3, 3, 'PHONE')]",
    "fractions": "return [(0.5, 2.5, 'PHONE')]",
}

_SOURCE = """
import os, sys, time
HIDDEN
WATCH
from weighbridge.masking import nursery
load = nursery._load
def faulty(setup):
    from weighbridge.masking import detector
    build = detector.build_layers
    def broken(*told):
        built, missing = build(*told)
        return {name: Broken(name, layer) for name, layer in built.items()}, missing
    detector.build_layers = broken
    return load(setup)
nursery._load = faulty
class Broken:
    def __init__(self, name, layer):
        self._name, self._layer = name, layer
        self.version, self.names, self.decoded = layer.version, layer.names, layer.decoded
    def find(self, text):
FAULTY
        return self._layer.find(text)
nursery.main()
"""


_WATCH = """
def watch(event, args):
    if event.startswith(EVENTS):
        with open(LOG, "a") as log:
            log.write(f"{event} {args!r}\\n")
sys.addaudithook(watch)
"""

CALL_HOME = "import socket; socket.socket().connect_ex(('127.0.0.1', 9))"
"""What a detector must not do; a text with `break-LAYER-call` makes the layer do it."""


def command(*, without: Collection[str] = (), log: Path | None = None) -> tuple[str, ...]:
    """The nursery's command.

    Args:
        without: packages that it is not to find installed.
        log: where it and its workers write down every event of `NETWORK_EVENTS`, one a line.
    """
    faulty = "".join(
        f"        if f'break-{{self._name}}-{name}' in text:\n            {code}\n"
        for name, code in {**FAULTS, "call": CALL_HOME}.items()
    )
    hidden = f"sys.modules.update(dict.fromkeys({tuple(without)!r}))" if without else ""
    watch = _WATCH.replace("EVENTS", repr(NETWORK_EVENTS)).replace("LOG", repr(str(log))) if log else ""
    source = _SOURCE.replace("FAULTY", faulty).replace("HIDDEN", hidden).replace("WATCH", watch)
    return (sys.executable, "-P", "-c", source)
