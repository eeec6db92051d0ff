"""The policy reference is generated: the committed page is what the schema says today."""

from __future__ import annotations

import json
import re
from pathlib import Path

from weighbridge.config.shape import leaves
from weighbridge.policies import reference
from weighbridge.policies.compiled import compile_policy
from weighbridge.policies.loader import parse_policy
from weighbridge.policies.overlay import ThresholdPatch, parse_patch
from weighbridge.policies.schema import PolicyDocument

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "policy.md"


def test_the_committed_page_is_the_generated_one() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference.render(), (
        "run: python -m weighbridge.policies.reference docs/reference/policy.md"
    )


def test_every_field_is_described_with_its_unit() -> None:
    for model in (PolicyDocument, ThresholdPatch):
        for leaf in leaves(model):
            assert leaf.slot.field is not None
            words = leaf.slot.field.description
            assert words, leaf.path
            if leaf.path[-1].endswith("_ms"):
                assert "milliseconds" in words
            if leaf.path[-1].endswith("_s"):
                assert "seconds" in words.lower()
            elif leaf.slot.type is float:
                assert re.search(r"\((score|probability|natural logarithm)", words), leaf.path


def test_the_examples_on_the_page_are_valid() -> None:
    page = reference.render()
    examples = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert len(examples) == 2
    first = compile_policy(parse_policy(examples[0].encode(), "first.yaml").document)
    assert first.egress == "never"
    assert first.place("classification", 0.9, "t").road == "local-8b"
    (body,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)

    assert parse_patch(json.loads(body)).reason
