"""The same request, policy, calibration and recorded facts give the same decision, byte for byte, in every process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import itertools, json, pathlib, sys
import msgspec
from weighbridge.config.errors import ApiError
from weighbridge.policies.loader import load_policy
from weighbridge.router.decision import Facts, decide
from weighbridge.router.difficulty.score import assess

bodies, policies, facts = sys.argv[1:4]
bodies = [json.loads(line)["body"] for line in pathlib.Path(bodies).read_text(encoding="utf-8").splitlines()]
facts = [msgspec.json.decode(line, type=Facts) for line in json.loads(facts)]
policies = {file: load_policy(pathlib.Path(file)) for file in json.loads(policies)}
for file, body in itertools.product(policies, bodies):
    policy, weight = policies[file], assess(body)
    for fact, model in itertools.product(facts, ("auto", "local-8b", "commercial")):
        try:
            made = msgspec.json.encode(decide(model, weight, policy, fact))
        except ApiError as refusal:
            made = f"{refusal.status} {refusal.code} {refusal.message}".encode()
        sys.stdout.buffer.write(made + b"\\n")
"""

POLICY = """
version: 1
name: many-sets
egress: masked

tenants:
  a: {forbid: [local-8b, commercial], ceiling: local-70b}
  b: {floor: local-70b, priority: batch}
tasks:
  code: {road: commercial, band: {at_least: 0.6}, forbid: [local-8b]}
  chat: {road: by-score}
escalation: {on: [empty, repetition, length, invalid_json, refusal]}
"""
FACTS = [
    {"tenant": "default", "local_roads": ["local-8b", "local-70b"], "commercial_configured": True},
    {"tenant": "a", "local_roads": ["local-8b", "local-70b"], "commercial_configured": True, "conversation": "local"},
    {"tenant": "b", "local_roads": ["local-70b"], "commercial_configured": True, "data_class": "restricted",
     "max_queue_ms": 5, "batch": True, "adapters": {"x": "local-70b", "y": "local-70b"}},
    {"tenant": "b", "local_roads": [], "commercial_configured": False, "switched_off": True},
]  # fmt: skip


def test_two_processes_decide_alike_byte_for_byte(tmp_path: Path) -> None:
    own = tmp_path / "policy.yaml"
    own.write_text(POLICY, encoding="utf-8")
    shipped = Path(__file__).parents[3] / "policies" / "default.yaml"
    arguments = (
        str(Path(__file__).with_name("task_prompts_unseen.jsonl")),
        json.dumps([str(shipped), str(own)]),
        json.dumps([json.dumps(facts) for facts in FACTS]),
    )
    outputs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "4711")
    ]
    assert outputs[0] == outputs[1]
    assert len(set(outputs[0].splitlines())) > 100
