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

Four more are there to be copied, in `policies/examples/`: `cost-first`, `privacy-first`, `korean-public-sector` and
`escalate`.

Check a policy with `weighbridge check --policy FILE`. Everything that is wrong is named by file, line, column and
field; the exit status is then 2. With `--json` it is one JSON object for a CI job: `ok`, `policy` (the version) and
`problems`.

```
policy.yaml:7:3: bounds.local_8b: must be a number between 0 and 1
policy.yaml:9:26: tasks.code.floor: must not be above ceiling local-70b
```

Unknown keys, keys given twice, numbers in quotes, anchors, aliases and tags are refused. A file holds at most 1 MiB.
A policy has no includes and inherits from no other: what is in force is what stands in the one file. What several
fields say together is checked once each of them is right by itself.

## How a road is chosen

1. The request is weighed: a task and a difficulty score from 0 to 1.
2. If the task has a row whose `road` is a road, that is the road, whatever the score is.
3. If its row says `by-score`, or it has none, the general bounds decide. They are strict: a score below
   `bounds.local_8b` goes to `local-8b`, one below `bounds.local_70b` to `local-70b`, any other to `commercial`; a score
   of exactly 0.45 under the shipped bounds goes to `local-70b`.
4. A row's `band` holds the score where the task belongs; with `by-score` the bounds then see the held score. `at_most`
   and `at_least` include their number, `below` does not. The score as it was weighed is recorded beside it, and the row
   as a reason.
5. The rules on roads of its task, its tenant and its API key lead it on, see below.
6. Whether the request may leave at all comes last: where it may not, or the settings hold no commercial endpoint, a
   request for `commercial` is answered by the best local tier, and its record says so.

The score is made for the policy's `risk`: it is below 0.45 exactly when the 8B's probability of failing is within
`risk.local_8b`, and below 0.55 when that or the 70B's is within `risk.local_70b`. More risk sends more to the cheaper
road, without a change of the bounds or of a band.

## Rules on roads

| key | where | what it does |
|---|---|---|
| `road` | a task's row | the road of this task, whatever its score; `by-score` leaves it to the bounds |
| `pin` | a tenant, a key | the same for all its requests |
| `floor` | a task's row, a tenant, a key | the lowest road it goes to |
| `ceiling` | a task's row, a tenant, a key | the highest road it goes to |
| `forbid` | a task's row, a tenant, a key | roads that are never used for it |

What wins:

- `forbid` adds up and holds against everything: a pin, overflow, failover, escalation, and the caller's own choice of a
  model, which gets 403 `road_forbidden`. A request that would begin on a forbidden road goes up to the next one that is
  open, or else down. `forbid: [commercial]` keeps a request, and its conversation, in as `egress: never` does.
- A model that the caller names stands before pin, floor and ceiling. Whether it may go on from there when it gets no
  slot is `explicit_local`'s business, and a ceiling or floor then holds again.
- The highest floor and the lowest ceiling count. Where a floor, a ceiling or a pin contradict each other, the more
  particular rule wins: key before tenant before task.
- Overflow, failover and escalation do not pass a ceiling upwards, nor go below a floor: a busy tier then means 429. A
  floor gives way in one case: nothing above it is open, because the request may not leave or there is no such tier.
- `egress` and `data_classes` stay stricter-only. No pin or floor opens what they close.
- Where the rules leave no road that is there, the request gets 403 `no_road_allowed`.

Rules that cannot be kept are refused with their place: a floor above the ceiling, a pin outside of both, a pin or road
that is forbidden by the same rule, a rule that forbids all roads, alone or together with a task's row. A tenant's and a
key's rule are not held against each other, as the policy does not know whose key it is.

## When an answer is not good enough

Before its first byte is sent, a local answer may be looked at and made anew one road up. `escalation.on` says what
counts; each move is an attempt of its own in the record, with its reason and cost, and none is made twice for one
reason. `most` limits the moves of one request. Streams are looked at only as far as `hold_tokens` are held back. A
task's row can replace each of the four; what it leaves out stays as it is in general. A ceiling, `forbid` and an
explicit choice with `explicit_local: stay` hold here too.

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
`egress switched off`. A rule that moved the request is there beside its score: `tenant: pin local-70b`,
`task code: floor local-70b`, `key: ceiling local-70b`, `local-8b forbidden: local-70b`; one that changed nothing is
not.
"""

_CHANGES = """\
## Changing a policy that is in force

The gateway looks at the file every `policies.poll_interval_s` and compares its content, so links that are swapped under
it (as Kubernetes does) are seen. New content is taken after it was read the same twice in a row. A request keeps the
policy it was admitted under. An invalid file changes nothing: the policy in force stays, the problems are logged by
file, line, column and field, and `weighbridge_policy_reload_failures_total` counts up once for every such content.

The version of a policy, such as `{version}`, is its name and the SHA-256 of everything in force, the admin's
thresholds included. Comments, the order of keys and defaults written out do not change it.

## Changes by an admin

The file is the base. What an admin changes lies over it, is kept on disk and survives restarts. It also survives a
change of the file: the overlay is laid over the new file, and where the two do not go together, the version that was
in force stays, after a restart too. `GET /admin/v1/policy` then says `"file": "conflict"` with the file's lines,
`/health/ready` says it under `parts.policy.file`, and the log has each problem. Change the file or the overlay, and
the file is taken.

The calls, below `/admin/v1/policies`:

{calls}
In an `overlay`, null leaves a thing out (a tenant's rule, a row, an optional value), and a list is replaced whole. An
overlay that a rebase lays over another policy changes what it names and nothing else; a whole document changes what it
changed in the policy that it was made for.

No admin opens what the settings keep shut: with `policies.max_egress: never` every policy of `egress: masked` is
refused, the file's too, and without a commercial endpoint `egress: never` cannot be changed to `masked` over the API.

```sh
curl -X POST http://127.0.0.1:8080/admin/v1/policies/proposals -H 'authorization: Bearer ADMIN_KEY' \\
  -d '{{"overlay": "tenants:\\n  legal: {{forbid: [commercial]}}\\n", "reason": "contract of May"}}'
curl -X POST http://127.0.0.1:8080/admin/v1/policies/proposals/1/apply -H 'authorization: Bearer ADMIN_KEY'
```

## Thresholds set by an admin

`PATCH /admin/v1/thresholds` changes the same overlay in one step. The values are checked whole, kept on disk, then
applied to the next request, and are a version like any other. `GET /admin/v1/thresholds` shows what is in force, what
the file says, and every change with who, when and why.

```json
{{"bounds": {{"local_8b": 0.40}}, "queue_lock_timeout_ms": null, "reason": "8B answers are too short in support"}}
```
"""


_CALLS = (
    (
        "POST .../proposals",
        "keeps a change with its author and `reason`: `policy`, a whole document, or `overlay`, a part of one; each as "
        "YAML text or as a JSON object. It is checked like a file: 400 has every problem under `error.problems`, with "
        "`path`, `line`, `column` and `message`.",
    ),
    ("GET .../proposals", "all of them in order; `after` and `limit` as for all lists here"),
    (
        "GET .../proposals/ID",
        "one, with what it would change in the policy in force: `changes` with `path`, `before` and `after`",
    ),
    (
        "POST .../proposals/ID/apply",
        "brings it into force; 409 `base_moved` where another version came into force since, unless the body says "
        '`{"rebase": true}`; 409 `already_applied` the second time',
    ),
    (
        "GET .../versions",
        "every version that was in force, with author, time, reason, and whether it came from the file or an admin",
    ),
    (
        "GET .../versions/VERSION",
        "one, whole; by its name (the latest entry of it) or by the id of its entry",
    ),
    (
        "POST .../versions/VERSION/rollback",
        "brings it into force again, as it was; needs a `reason`",
    ),
)


def render() -> str:
    """The page as Markdown."""
    default = shipped("default")
    parts = [
        _INTRO,
        "## Fields\n",
        _fields(PolicyDocument, {"tasks": "<task>", "tenants": "<tenant>", "keys": "<key>"}),
        "A tenant or key can only be stricter than the policy about what leaves. If an admin later shortens the "
        "general wait below a tenant's, the shorter one counts.\n",
        "## Tasks and the shipped rows\n",
        table(("Task", "What it is", "Road", "Band"), [_task(task, default) for task in TASKS]),
        "`on-prem-only` has the same rows with `egress: never` and `overflow_order: [higher-local, lower-local]`.\n",
        _CHANGES.format(
            version=default.version,
            calls=table(("Call", "What it does"), [(f"`{call}`", words) for call, words in _CALLS]),
        ),
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
