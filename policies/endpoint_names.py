"""Whether the commercial endpoints that a policy names are there."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence


def endpoint_problems(
    steps: Sequence[Mapping[str, int]], known: Collection[str]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Where a policy names an endpoint that the settings do not have, and what is wrong there.

    Args:
        steps: the policy's `endpoints`.
        known: those of the settings. Without any, nothing leaves, and a policy may name what others have.
    """
    if not known:
        return
    for n, step in enumerate(steps):
        for name in step:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                meant = f"; did you mean {near[0]}?" if near else ""
                yield (
                    ("endpoints", n, name),
                    f"the settings have no endpoint of this name, but {', '.join(known)}{meant}",
                )
