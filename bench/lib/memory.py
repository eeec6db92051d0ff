"""Memory of processes, as the kernel counts it."""

from __future__ import annotations

from pathlib import Path


def megabytes(pid: int) -> dict[str, float]:
    """Resident, proportional (shared pages divided by those who share them) and private memory, in MiB."""
    facts: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        facts[name] = int(rest.split()[0])
    private = facts["Private_Clean"] + facts["Private_Dirty"]
    return {"RSS": facts["Rss"] / 1024, "PSS": facts["Pss"] / 1024, "private": private / 1024}
