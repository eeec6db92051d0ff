"""No dumps of processes that hold requests."""

from __future__ import annotations

import resource


def forbid_core_dumps() -> None:
    """Limit the core dumps of this process and its children to one byte, for good.

    Not to none, where the limit in force allows one: Linux gives the dump of a process whose limit is zero to a crash
    reporter that takes dumps over a pipe, and passes over one whose limit is one.
    """
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    limit = 0 if most == 0 else 1
    resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))
