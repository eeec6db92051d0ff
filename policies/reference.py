"""Writes the policy reference from the schema: `python -m weighbridge.policies.reference FILE`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pydantic import BaseModel

from weighbridge.config.reference import default_of, main, path_of, table, value_of
from weighbridge.config.shape import Leaf, leaves
from weighbridge.policies.compiled import Policy
from weighbridge.policies.loader import shipped, shipped_path
from weighbridge.policies.overlay import ThresholdPatch
from weighbridge.policies.schema import PolicyDocument
from weighbridge.policies.tasks import MEANING, TASKS, Task

_INTRO = """\
# Policy reference

Generated from the schema by `python -m weighbridge.policies.reference docs/reference/policy.md`.

A policy is one YAML file. It says which road a request takes, how long it waits for a slot, and whether anything may
leave. Two are shipped: `default` and `on-prem-only`. To use your own, copy one of them and name the copy in the
settings (`policies.file`).

A first policy, for a site where nothing leaves and labelling always goes to the 8B:

```yaml
version: 1
name: first
egress: never
tasks:
  classification: {road: local-8b}
```

Check a policy with `weighbridge check`. What is wrong is named by file, line and field:

```
policy.yaml:7: bounds.local_8b: must be a number between 0 and 1
```

Unknown keys, keys given twice, numbers in quotes, anchors, aliases and tags are refused. A file holds at most 1 MiB.

## How a road is chosen

1. The request is weighed: a task and a difficulty score from 0 to 1.
2. If the task has a row whose `road` is a road, that is the road, whatever the score is.
3. If its row says `by-score`, or it has none, the general bounds decide. They are strict: a score below
   `bounds.local_8b` goes to `local-8b`, one below `bounds.local_70b` to `local-70b`, any other to `commercial`; a score
   of exactly 0.45 under the shipped bounds goes to `local-70b`.
4. A row's `band` holds the score where the task belongs; with `by-score` the bounds then see the held score. `at_most`
   and `at_least` include their number, `below` does not. The score as it was weighed is recorded beside it, and the row
   as a reason.
5. Whether the request may leave at all comes last: where it may not, or the settings hold no commercial endpoint, a
   request for `commercial` is answered by the best local tier, and its record says so.

## Where a request goes that gets no slot

A request waits for a slot on its tier for `queue_lock_timeout_ms` at most; it does not wait at all where the queue
cannot drain in that time. Then `overflow_order` says where it goes, first to last:

- `higher-local`, `lower-local`: the local tier that is more, or less, capable than the one that had no slot. It is
  taken only if a slot is free there at that moment; nobody queues a second time.
- `commercial`: the commercial API, masked; passed over where nothing may leave.

Where nothing is left, and with an empty list at once, the caller gets 429 with `Retry-After`. A request that names a
local tier itself goes on only with `explicit_local: overflow`.

## Whether a request may leave at all

It is decided before masking, and anything that is not known is a no. A request stays when

- `egress` is `never` for the policy, its tenant, its API key (`keys`, by the id in `auth.keys`) or its task's row;
- its data class is none of `data_classes.may_leave`. The class is the strictest of the policy's `default`, the
  tenant's, the key's, and the one that the caller names in `x-weighbridge-data-class`; a name that is not in `order`
  stays;
- its conversation stays: it was pinned, its pin was lost, or the pins cannot be read
  ([operations](../operations.md#conversations-that-stay));
- the kill switch is thrown ([operations](../operations.md#switching-egress-off)).

Then its text is looked at. It stays, with a reason code and no word of it in any answer or log, when it holds a term or
a marking of `blocked`, a kind of value in `refuse`, data of more than `max_people` people or more than `max_chars`
characters; where `free_text` is `refuse`, when it holds prose; and for all else that masking finds unsafe.

For a request whose text is the reason, `on_refusal` says what happens:

- `local`: a local tier may still serve it in the time it has. One that it left early, because the queue was predicted
  to be too long, is asked once more.
- `reject`: it is answered at once.

| what happened | answer |
|---|---|
| it was to leave and may not, no local tier can serve it, or `reject` | 403 `egress_refused`, no `Retry-After` |
| the local tiers are busy, and it may not leave | 429 with `Retry-After`; 503 `no_capacity` where they are down |
| masking cannot look at the moment, and no local tier can serve | 503 `masking_unavailable`, with `Retry-After` |

`blocked.words` are found wherever they stand. `blocked.patterns` are regular expressions; the shipped ones find
document markings in capitals (`CONFIDENTIAL`), alone on a line, in brackets or after a label, and leave the same words
in a sentence alone. All of it together has `blocked.time_limit_ms` for one request; a search that takes longer counts
as found. A pattern that cannot be compiled, or that matches the empty text, is refused with the file's line.

## Words for the record

Reasons are short sentences that stay the same from version to version: `score 0.412 < 0.450`,
`task classification: local-8b, at most 0.30`. What keeps a request in is among them: `data class restricted`,
`data class not known`, `task code: egress never`, `egress never for this key`, `conversation pinned local`,
`egress switched off`.
"""

_CHANGES = """\
## Changing a policy that is in force

The gateway looks at the file every `policies.poll_interval_s` and compares its content, so links that are swapped under
it (as Kubernetes does) are seen. New content is taken after it was read the same twice in a row. A request keeps the
policy it was admitted under. An invalid file changes nothing: the policy in force stays, the problems are logged by
file, line and field, and `weighbridge_policy_reload_failures_total` counts up once for every such content.

The version of a policy, such as `{version}`, is its name and the SHA-256 of everything in force, the admin's
thresholds included. Comments, the order of keys and defaults written out do not change it.

## Thresholds set by an admin

`PATCH /admin/v1/thresholds` lays values over the file. They are checked whole, kept on disk, then applied to the next
request; they survive a restart and later changes of the file. A file that does not go with them is refused like any
invalid file (at a start: the start ends with the line). `GET /admin/v1/thresholds` shows what is in force, what the
file says, and who changed it when and why.

```json
{{"bounds": {{"local_8b": 0.40}}, "queue_lock_timeout_ms": null, "reason": "8B answers are too short in support"}}
```
"""


def render() -> str:
    """The page as Markdown."""
    default = shipped("default")
    parts = [
        _INTRO,
        "## Fields\n",
        _fields(PolicyDocument, {"tasks": "<task>", "tenants": "<tenant>", "keys": "<key>"}),
        "A tenant or key can only be stricter than the policy. If an admin later shortens the general wait below a "
        "tenant's, the shorter one counts.\n",
        "## Tasks and the shipped rows\n",
        table(("Task", "What it is", "Road", "Band"), [_task(task, default) for task in TASKS]),
        "`on-prem-only` has the same rows with `egress: never` and `overflow_order: [higher-local, lower-local]`.\n",
        _CHANGES.format(version=default.version),
        _fields(ThresholdPatch, {}),
        "## The shipped default\n",
        f"```yaml\n{shipped_path('default').read_text(encoding='utf-8').strip()}\n```\n",
    ]
    return "\n".join(parts)


def _fields(model: type[BaseModel], keys: dict[str, str]) -> str:
    def row(leaf: Leaf) -> tuple[str, ...]:
        path = tuple(keys.get(leaf.path[0], step) if step == "*" else step for step in leaf.path)
        field = leaf.slot.field
        words = field.description or "" if field is not None else ""
        return f"`{path_of(path)}`", value_of(leaf.slot), default_of(leaf.slot), words

    return table(("Field", "Value", "Default", "Meaning"), [row(leaf) for leaf in leaves(model)])


def _task(task: Task, policy: Policy) -> Sequence[str]:
    row = policy.content()["tasks"][task]
    band = ", ".join(f"`{name}: {bound:.2f}`" for name, bound in row.get("band", {}).items())
    return f"`{task}`", MEANING[task], f"`{row['road']}`", band or "none"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], render()))
