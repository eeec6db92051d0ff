"""A policy's rules for the text of what may leave, in the shape masking takes them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import suppress

from weighbridge.config.offload import MASKING
from weighbridge.masking.blocked import compile_blocked
from weighbridge.masking.rules import Blocked, Rules
from weighbridge.policies.compiled import Policy

_LONG_CHARS = 20_000
"""Characters of blocked terms from which making them ready takes longer than the event loop should wait."""
_KEPT = 8
"""Policy versions whose terms stay ready: a request keeps the policy it was admitted under."""

_making = threading.Lock()
_ready: OrderedDict[str, Blocked | None] = OrderedDict()


def rules_for(policy: Policy, tenant: str, key_id: str = "") -> Rules:
    """What `policy` asks of the text of one tenant's and key's requests.

    The blocked terms of a policy version are made ready once; see `takes_long`. Any thread may call it.
    """
    asked = policy.leaving.text_rules(tenant, key_id)
    return Rules(
        free_text=asked.free_text,
        refused=asked.refused,
        max_people=asked.max_people,
        max_chars=asked.max_chars,
        blocked=_blocked(policy),
    )


async def rules_beside(policy: Policy, tenant: str, key_id: str = "") -> Rules:
    """The same for the event loop, which does not wait where terms have to be made ready."""
    if takes_long(policy):
        return await MASKING.run(rules_for, policy, tenant, key_id)
    return rules_for(policy, tenant, key_id)


def takes_long(policy: Policy) -> bool:
    """Whether the next `rules_for` of this policy belongs beside the event loop."""
    terms = policy.leaving.blocked
    return policy.version not in _ready and sum(map(len, (*terms.words, *terms.patterns))) > _LONG_CHARS


def _blocked(policy: Policy) -> Blocked | None:
    terms = policy.leaving.blocked
    # Without the lock, which somebody may hold for a second: the event loop comes by here.
    with suppress(KeyError):
        return _ready[policy.version]
    with _making:
        if policy.version in _ready:
            return _ready[policy.version]
        some = terms.words or terms.patterns
        made = compile_blocked(terms.words, terms.patterns, terms.limit_s) if some else None
        _ready[policy.version] = made
        while len(_ready) > _KEPT:
            _ready.popitem(last=False)
        return made
