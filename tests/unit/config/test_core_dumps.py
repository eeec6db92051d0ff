"""What a process that forbids core dumps may still write."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import resource
resource.setrlimit(resource.RLIMIT_CORE, ({0}, {0}))
from weighbridge.config.core_dumps import forbid_core_dumps
forbid_core_dumps()
print(*resource.getrlimit(resource.RLIMIT_CORE))
"""


@pytest.mark.parametrize(("before", "after"), [("4096", "1 1"), ("1", "1 1"), ("0", "0 0")])
def test_the_limit_only_falls(before: str, after: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == after
