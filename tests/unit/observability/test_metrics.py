from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from prometheus_client.parser import text_string_to_metric_families

from weighbridge.commercial.errors import FailureKind
from weighbridge.config.roads import LOCAL_ROADS, ROADS
from weighbridge.masking.errors import REASONS
from weighbridge.observability.metrics import EGRESS_OUTCOMES, MASKING_REASONS, NO_ROAD, Metrics
from weighbridge.observability.pool_metrics import WORKER_STATES
from weighbridge.observability.records import Outcome
from weighbridge.pool.worker import WorkerState

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def series(metrics: Metrics) -> Series:
    """What Prometheus itself would read."""
    body, content_type = metrics.render()
    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return series(metrics)[(f"weighbridge_{name}", frozenset(labels.items()))]


def test_a_request_is_counted_everywhere() -> None:
    metrics = Metrics()
    metrics.request_done(
        road="local-8b",
        outcome="ok",
        seconds=0.3,
        ttft_seconds=0.04,
        prompt_tokens=12,
        cached_tokens=8,
        completion_tokens=30,
    )
    metrics.request_done(
        road="none",
        outcome="refused",
        seconds=0.01,
        ttft_seconds=None,
        prompt_tokens=0,
        cached_tokens=0,
        completion_tokens=0,
    )
    assert value(metrics, "requests_total", road="local-8b", outcome="ok") == 1
    assert value(metrics, "requests_total", road="none", outcome="refused") == 1
    assert value(metrics, "request_seconds_sum", road="local-8b") == 0.3
    assert value(metrics, "request_seconds_bucket", road="local-8b", le="0.25") == 0
    assert value(metrics, "request_seconds_bucket", road="local-8b", le="0.5") == 1
    assert value(metrics, "ttft_seconds_count", road="local-8b") == 1
    assert value(metrics, "ttft_seconds_count", road="none") == 0
    assert [
        value(metrics, "tokens_total", road="local-8b", kind=kind)
        for kind in ("prompt", "cached", "completion")
    ] == [12, 8, 30]


def test_every_closed_set_is_there_from_the_start() -> None:
    shown = series(Metrics())
    for road in (*ROADS, NO_ROAD):
        for outcome in get_args(Outcome):
            labels = frozenset({("road", road), ("outcome", outcome)})
            assert shown[("weighbridge_requests_total", labels)] == 0
    names = ("queue_timeouts_total", "slots_in_use", "slots_total", "waiting", "tier_ready")
    for tier in LOCAL_ROADS:
        for name in (*names, "kv_reserved_tokens", "kv_budget_tokens"):
            assert shown[(f"weighbridge_{name}", frozenset({("tier", tier)}))] == 0
        for name, label, values in (
            ("queue_refusals_total", "reason", ("queue_full", "predicted_wait", "no_free_slot", "closed")),
            ("continuations_total", "outcome", ("ok", "lost", "no_worker")),
        ):
            for one in values:
                assert shown[(f"weighbridge_{name}", frozenset({("tier", tier), (label, one)}))] == 0
    for name in (
        "records_at_risk_total",
        "records_dropped_total",
        "records_unpriced_total",
        "slow_reader_aborts_total",
    ):
        assert shown[(f"weighbridge_{name}", frozenset())] == 0


def test_workers_show_from_their_first_use_on() -> None:
    metrics = Metrics()
    assert not any("worker" in dict(labels) for _, labels in series(metrics))
    metrics.worker_restarts_total.labels("local-8b", "63").inc()
    metrics.worker_restarts_total.labels("local-8b", "64").inc()
    metrics.worker_restarts_total.labels("local-8b", "a name of a caller's").inc()
    assert value(metrics, "worker_restarts_total", tier="local-8b", worker="63") == 1
    assert value(metrics, "worker_restarts_total", tier="local-8b", worker="other") == 2
    assert sum(name == "weighbridge_worker_restarts_total" for name, _ in series(metrics)) == 2


def test_one_state_of_a_worker_is_the_present_one() -> None:
    metrics = Metrics()
    metrics.worker_is("local-8b", "0", "ready")
    for state in ("starting", "warming"):
        metrics.worker_is("local-8b", "1", state)

    def states(worker: str) -> dict[str, float]:
        labels = {"tier": "local-8b", "worker": worker}
        return {
            state: value(metrics, "worker_state", state=state, **labels)
            for state in ("starting", "warming", "ready", "other")
        }

    assert states("0") == {"starting": 0, "warming": 0, "ready": 1, "other": 0}
    assert states("1") == {"starting": 0, "warming": 1, "ready": 0, "other": 0}
    metrics.worker_is("local-8b", "1", "never heard of")
    assert states("1") == {"starting": 0, "warming": 0, "ready": 0, "other": 1}


def test_no_state_of_a_worker_is_shown_as_other() -> None:
    assert set(WORKER_STATES) == {*WorkerState, "other"}


def test_every_metric_has_its_type_before_it_has_a_value() -> None:
    kinds = {family.name: family.type for family in Metrics().registry.collect()}
    assert kinds["weighbridge_engine_preemptions"] == "counter"
    assert kinds["weighbridge_engine_time_to_first_token_seconds"] == "histogram"
    assert kinds["weighbridge_engine_running"] == "gauge"


def test_names_say_their_kind_and_unit() -> None:
    names = Metrics().names
    for family in Metrics().registry.collect():
        # The parser of the exposition takes the ending off: only counters may have it.
        assert (f"{family.name}_total" in names) is (family.type == "counter"), family.name
        assert family.name.endswith("_seconds") or family.type != "histogram", family.name


def test_the_page_for_operators_lists_every_metric_and_no_other() -> None:
    page = Path(__file__).parents[3].joinpath("docs", "operations.md").read_text(encoding="utf-8")
    table = page.split("## Metrics")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    have = [name.removeprefix("weighbridge_") for name in Metrics().names]
    assert sorted(listed) == sorted("policy_info" if name == "policy" else name for name in have)


def test_gauges_and_the_policy_in_force() -> None:
    metrics = Metrics()
    metrics.slots_in_use.labels("local-70b").set(3)
    metrics.policy_info.set("old@000000000000")
    metrics.policy_info.set("default@0123456789ab")
    metrics.masking_refusals_total.labels("some text of a request").inc()
    assert value(metrics, "slots_in_use", tier="local-70b") == 3
    assert value(metrics, "policy_info", version="default@0123456789ab") == 1
    assert sum(name == "weighbridge_policy_info" for name, _ in series(metrics)) == 1
    assert value(metrics, "masking_refusals_total", reason="other") == 1
    assert b"some text" not in metrics.render()[0]


def test_no_known_reason_is_counted_as_other() -> None:
    assert set(MASKING_REASONS) == {*REASONS, "other"}
    assert set(get_args(FailureKind)) < set(EGRESS_OUTCOMES)


def test_instances_share_nothing() -> None:
    one, two = Metrics(), Metrics()
    one.slow_reader_aborts_total.inc()
    assert value(two, "slow_reader_aborts_total") == 0


PROGRAM = """
import sys
from weighbridge.observability.metrics import Metrics
metrics = Metrics()
metrics.slow_reader_aborts_total.inc(7)
metrics.tokens_total.labels("local-8b", "prompt").inc(5)
metrics.request_seconds.labels("local-8b").observe(1)
sys.stdout.write(metrics.render()[0].decode())
"""


@pytest.mark.parametrize("folder", [None, "there", "not-there"])
def test_values_stay_in_the_process_whatever_vllm_set(folder: str | None, tmp_path: Path) -> None:
    env = {k: v for k, v in os.environ.items() if k.upper() != "PROMETHEUS_MULTIPROC_DIR"}
    (tmp_path / "there").mkdir()
    if folder is not None:
        env["PROMETHEUS_MULTIPROC_DIR"] = str(tmp_path / folder)
    for _ in range(2):  # a second process must not see the first one's numbers
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], env=env, capture_output=True, check=True, encoding="utf-8"
        )
        assert "weighbridge_slow_reader_aborts_total 7.0" in done.stdout
        assert 'weighbridge_tokens_total{kind="prompt",road="local-8b"} 5.0' in done.stdout
        assert 'weighbridge_request_seconds_count{road="local-8b"} 1.0' in done.stdout
    assert list((tmp_path / "there").iterdir()) == []
