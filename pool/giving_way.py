"""Who leaves a full queue so that a tenant with less in it comes in: else one tenant could fill it and shut all out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from weighbridge.pool.slot_lock import Ask, Priority


class Numbered(Protocol):
    """One who waits, as the choice sees it."""

    @property
    def number(self) -> int:
        """Its place in the order of coming."""
        ...


N = TypeVar("N", bound=Numbered)


def who_gives_way(
    newcomer: Ask, queues: Sequence[dict[str, dict[N, None]]], held_by: Mapping[str, int]
) -> N | None:
    """The one whose place in a full queue goes to a newcomer; None turns the newcomer away.

    The tenant with the most waiting gives a place up, among equal ones the one that holds more slots, then the one
    that came last: the last to come of its least urgent ones. Never one more urgent than the newcomer, and never for
    a tenant that would then stand where that one stood, with as many waiting and no fewer slots: the two would push
    each other out in turn. One look at every tenant that waits.

    Args:
        newcomer: not `Priority.CONTINUED`, which no bound turns away. Nor do such answers count here.
        queues: by priority and tenant, in order of coming; no queue is empty.
        held_by: slots in use by tenant; none where a tenant is missing.
    """
    interactive, batch = queues[Priority.INTERACTIVE], queues[Priority.BATCH]
    waiting = {tenant: len(queue) for tenant, queue in interactive.items()}
    for tenant, queue in batch.items():
        waiting[tenant] = waiting.get(tenant, 0) + len(queue)
    # The least urgent queue of each tenant that has one it may be pushed out of.
    yielding = batch if newcomer.priority is Priority.BATCH else {**interactive, **batch}
    most = (waiting.get(newcomer.tenant, 0) + 1, held_by.get(newcomer.tenant, 0))
    chosen: N | None = None
    for tenant, queue in yielding.items():
        if waiting[tenant] < most[0]:
            continue
        claim, last = (waiting[tenant], held_by.get(tenant, 0)), next(reversed(queue))
        if claim > most or (chosen is not None and claim == most and last.number > chosen.number):
            most, chosen = claim, last
    return chosen
