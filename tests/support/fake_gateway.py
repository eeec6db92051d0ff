"""`python -m tests.support.fake_gateway CONFIG [TOKEN_S]`: the real gateway with fake engines, as a process."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.fake_engine import FakeEngine, Script
from weighbridge.config.settings import load_settings
from weighbridge.gateway.serve import serve


def main() -> None:
    token_s = float(sys.argv[2]) if len(sys.argv) > 2 else 0.002
    serve(
        load_settings(Path(sys.argv[1])),
        announce=lambda text: print(text, flush=True),
        engine_factory=lambda road, *_: FakeEngine(road, script=Script(token_s=token_s)),
    )


if __name__ == "__main__":
    main()
