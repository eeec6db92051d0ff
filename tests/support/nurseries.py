"""One nursery for all gateways of a test process: loading the detectors takes seconds, forking a worker does not.

They end with the test process, as they do with a gateway.
"""

from __future__ import annotations

from weighbridge.config.settings import MaskingSettings
from weighbridge.masking.detector_nursery import DetectorNursery
from weighbridge.masking.masker import setup_of
from weighbridge.masking.wire import Setup

_SHARED: dict[Setup, DetectorNursery] = {}


def shared_nursery(settings: MaskingSettings | None = None) -> DetectorNursery:
    """The one for these settings; starts when a worker is first wanted. It is nobody's to close."""
    setup = setup_of(settings or MaskingSettings(layers=[], without_names="mask"))
    return _SHARED.setdefault(setup, DetectorNursery(setup))


async def load(nursery: DetectorNursery) -> None:
    """Returns when it has loaded its detectors, which is no part of what a test waits for its gateway.

    Raises:
        ChildLost: it cannot.
    """
    if nursery.pid == -1:
        await (await nursery.start_child()).kill()
