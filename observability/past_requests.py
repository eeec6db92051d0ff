"""The requests of the past as far as they can be decided anew: scores, names and counts."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple


class PastRequest(NamedTuple):
    """One that has ended.

    Args:
        decided, served: the first road, and the one that answered; empty where none.
        tokens: prompt and answer.
    """

    admitted_ns: int | None
    tenant: str
    key_id: str
    model: str
    task: str
    score: float | None
    p_8b_fails: float | None
    p_70b_fails: float | None
    decided: str
    served: str
    tokens: int
    cost_nano: int | None
    currency: str


_SELECT = """SELECT admitted_ns, coalesce(tenant, ''), coalesce(key_id, ''), coalesce(model_requested, ''),
    coalesce(task, 'unknown'), score, p_8b_fails, p_70b_fails, coalesce(road_decided, ''), coalesce(road, ''),
    coalesce(prompt_tokens, 0) + coalesce(completion_tokens, 0), cost_nano, coalesce(currency, '')
FROM requests WHERE outcome IS NOT NULL ORDER BY request_id DESC LIMIT ?"""


def last_requests(conn: sqlite3.Connection, count: int) -> list[PastRequest]:
    """The last `count` requests that were admitted and have ended, the latest first: ids tell the order.

    Raises:
        sqlite3.Error: the ledger cannot be read.
    """
    cursor = conn.cursor()
    cursor.row_factory = None
    return [PastRequest(*row) for row in cursor.execute(_SELECT, (count,))]
