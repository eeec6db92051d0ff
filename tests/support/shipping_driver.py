"""`python -m tests.support.shipping_driver SPOOL URL BATCH`: a process that does nothing but ship a spool.

Says `ready KB` once it has begun, KB being the most memory it has had; then answers each line on standard input with
`standing RECORDS TROUBLE KB`, and ends in order when its input does.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.ledger_rows import CHAIN_KEY
from tests.support.shipping import make_shipper
from weighbridge.config.clock import SystemClock
from weighbridge.observability.ledger import Ledger
from weighbridge.observability.metrics import Metrics


def peak_kb() -> int:
    # What `getrusage` says begins with what the process had before it became this program.
    (line,) = (
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")
    )
    return int(line.split()[1])


def main(spool: Path, url: str, size: int) -> None:
    metrics = Metrics()
    ledger = Ledger.open(spool, clock=SystemClock(), chain_key=CHAIN_KEY, metrics=metrics)
    shipper = make_shipper(spool, url, ledger, metrics, batch_size=size, timeout_s=10)
    print("ready", peak_kb(), flush=True)
    shipper.start()
    for _ in sys.stdin:
        standing = shipper.standing()
        print("standing", standing.records, standing.trouble, peak_kb(), flush=True)
    shipper.stop(0.5)
    ledger.close_sync()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
