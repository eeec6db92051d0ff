"""Writes the configuration reference from the schema: `python -m weighbridge.config.reference FILE`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from weighbridge.config.envsource import CONFIG_VARIABLE, variable
from weighbridge.config.settings import Settings
from weighbridge.config.shape import Leaf, Slot, expected, leaves
from weighbridge.config.shipped import shipped_file

_INTRO = f"""\
# Configuration reference

Generated from the schema by `python -m weighbridge.config.reference docs/reference/configuration.md`.

Settings come from four places; each goes over the next:

1. options of the command line,
2. environment variables: `WEIGHBRIDGE_`, the path in capitals, `__` between its parts, `_` for a hyphen;
   sections, lists and mappings as JSON; an empty variable counts as not set, `null` takes an optional value away,
3. one YAML file, given by `--config PATH` or `{CONFIG_VARIABLE}`,
4. the shipped defaults (`config/defaults.yaml`, printed at the end of this page).

All of it is checked before anything starts. An unknown key or variable, a wrong type or an illegal value ends the start
with one line a problem, `file:line:column: field: what is wrong`; `weighbridge check` does only that, and prints the
settings in force. Secrets are taken from the environment or from a file of their own, never from the YAML file, and
are never printed. A path may begin with `~`; a relative one starts at the working directory. The YAML file is read by
the rules of YAML 1.2, without anchors and tags, up to 1 MiB.

Variables that Kubernetes adds for a Service named `weighbridge` (`WEIGHBRIDGE_SERVICE_HOST`, `WEIGHBRIDGE_PORT` and
others) are left alone.
"""

_SECTIONS = {
    "server": "The HTTP server.",
    "auth": 'Who may call. Make a key\'s hash with `printf %s "$KEY" | sha256sum`.',
    "tiers": "The local tiers, `local-8b` and `local-70b`; each has the fields below (`*` is the tier; for the other "
    "one write `LOCAL_70B` in the variable). `local-70b: null` means that there is no such tier.",
    "pool": "Starting and stopping the local engines.",
    "commercial": "The commercial API: one of the two switches of egress; the other is the policy's `egress`.",
    "redis": "What several gateways share; see [Redis](../redis.md).",
    "policies": "Which routing policy is in force; see the [policy reference](policy.md).",
    "masking": "The detectors that stand before everything that leaves.",
    "traces": "OpenTelemetry spans of some requests: stages, numbers and names, never content.",
    "log": "What the gateway writes to stderr: never a word of a request.",
    "collector": "The OpenTelemetry collector that usage records are shipped to; see [shipping](../shipping.md).",
    "prices": "What tokens and GPU hours cost; see the [price book reference](prices.md).",
    "ledger": "The usage records; see [what they hold](../ledger.md).",
    "state_dir": "Where records and admin changes are kept.",
}


def render() -> str:
    """The page as Markdown."""
    found = list(leaves(Settings))
    parts = [_INTRO]
    for section, words in _SECTIONS.items():
        rows = [_row(leaf) for leaf in found if leaf.path[0] == section]
        parts += [f"## {section}\n\n{words}\n", table(_HEAD, rows)]
    text = Path(shipped_file().name).read_text(encoding="utf-8")
    parts.append(f"## The shipped defaults\n\n```yaml\n{text.strip()}\n```\n")
    return "\n".join(parts)


_HEAD = ("Field", "Value", "Default", "Environment variable", "Meaning")


def _row(leaf: Leaf) -> tuple[str, ...]:
    return (
        f"`{path_of(leaf.path)}`",
        value_of(leaf.slot),
        default_of(leaf.slot),
        _variable(leaf),
        leaf.slot.field.description or "" if leaf.slot.field is not None else "",
    )


def _variable(leaf: Leaf) -> str:
    if "[]" in leaf.path:
        outer = leaf.path[: leaf.path.index("[]")]
        return f"in the JSON of `{variable(outer)}`"
    if "*" in leaf.path and leaf.path[0] != "tiers":
        return f"in the JSON of `{variable(leaf.path[: leaf.path.index('*')])}`"
    # `*` would be read as a pattern by a shell; the tier's own word is what one copies.
    return f"`{variable(tuple('local-8b' if step == '*' else step for step in leaf.path))}`"


def path_of(path: Sequence[str]) -> str:
    """A leaf's path as it is written in the tables."""
    return ".".join(path).replace(".[]", "[]")


def value_of(slot: Slot) -> str:
    """What a field takes, for a table."""
    noun = "secret text" if slot.type is SecretStr else expected(slot)
    return f"{noun}, or null" if slot.optional else noun


def default_of(slot: Slot) -> str:
    """A field's default, for a table."""
    field = slot.field
    said: Any = slot.extra.get("default")
    if isinstance(said, str):
        return said
    if field is None or field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True, validated_data={})
    # As JSON, which is YAML and reads the same in both; text without its quotes unless it is empty.
    return f"`{value}`" if isinstance(value, str) and value else f"`{json.dumps(value)}`"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def main(arguments: Sequence[str], page: str) -> int:
    """Write `page` to the file named by the only argument; without one, to standard output."""
    if arguments:
        Path(arguments[0]).write_text(page, encoding="utf-8")
    else:
        sys.stdout.write(page)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], render()))
