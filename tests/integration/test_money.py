"""Money that adds up, over the records of a whole gateway: what it booked, what the report says, and what somebody who
has only the exported lines and the price file makes of them."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import closing
from pathlib import Path

import pytest
import yaml

from tests.support import ledger_rows
from tests.support import recorder as rec
from tests.support.money import as_recomputed
from tests.support.recompute import cost_of, recompute
from tests.support.recorder import recording
from tests.support.running import Running, policy_file, running_gateway
from tests.support.saying import Saying
from tests.support.waiting import until
from weighbridge.config.clock import SystemClock
from weighbridge.config.exact import instant_text
from weighbridge.config.prices import load_prices
from weighbridge.config.settings import MaskingSettings
from weighbridge.gateway import cli
from weighbridge.masking.secret import obtain_secrets
from weighbridge.observability.costs import CostTable
from weighbridge.observability.ledger import Ledger
from weighbridge.observability.ledger_read import LEDGER_FILE, open_readonly
from weighbridge.observability.price_pricer import BookPricer
from weighbridge.observability.savings_read import read_savings
from weighbridge.observability.savings_report import Window

SECOND = 1_000_000_000
LABEL = "Classify this review as positive or negative: the delivery was fast."
ESCALATES = {"escalation": {"on": ["invalid_json"]}}


def prices(folder: Path, currency: str, changes_ns: int) -> Path:
    """Prices that go up at an instant, in both currencies."""
    change = instant_text(changes_ns)
    file = folder / "prices.yaml"
    file.write_text(f"""\
name: test
currency: {currency}
exchange:
  - {{since: 2020-01-01, krw_per_usd: 1473.25}}
  - {{since: {change}, krw_per_usd: 1391.7}}
commercial:
  gpt-4o:
    - {{since: 2020-01-01, currency: USD, input: 2.50, cached_input: 1.25, output: 10.00}}
    - {{since: {change}, currency: KRW, input: 4000, cached_input: 1999.999999999, output: 17000}}
gpus:
  bought:
    - {{since: 2020-01-01, currency: USD, purchase: 30000, amortisation_years: 3, watts: 600, pue: 1.5,
       electricity_per_kwh: 0.13}}
    - {{since: {change}, currency: KRW, per_hour: 2571.43}}
tiers:
  local-8b: [{{since: 2020-01-01, gpu: bought, gpus_per_worker: 0.5}}]
  local-70b: [{{since: 2020-01-01, gpu: bought, gpus_per_worker: 1}}]
savings:
  compared_with: gpt-4o
  token_factor: 0.75
""")
    return file


def earlier(state: Path, pricer: BookPricer, ns: int) -> None:
    """What an earlier gateway left: an answer before the price change, one it died over, an outward request without
    the record of its attempt, and an attempt that came after its request's end."""
    state.mkdir()

    async def write() -> None:
        key = obtain_secrets(MaskingSettings(), state).chain_keys()[0]
        ledger = Ledger.open(state / LEDGER_FILE, clock=SystemClock(), chain_key=key, pricer=pricer)
        for n, road in enumerate(("local-8b", "commercial"), 1):
            at = ns + n
            outward = road == "commercial"
            name = f"{at // 10**6 >> 16:08x}-{at // 10**6 & 0xFFFF:04x}-7000-8000-00000000000{n}"
            ledger.intent(ledger_rows.intent(name, admitted_ns=at))
            await ledger.completion(
                ledger_rows.completion(
                    name, ended_ns=at + SECOND, total_ms=1000.0, road=road, prompt_tokens=901
                )
            )
            ledger.attempt(
                ledger_rows.attempt(
                    name,
                    road=road,
                    started_ns=at,
                    prompt_tokens=901,
                    cached_tokens=300,
                    egress_id=f"e{n}" if outward else "",
                    backend="main" if outward else "local-8b/9",
                    model="gpt-4o",
                    worker_us=0 if outward else 1_234_567,
                )
            )
        lost = f"{ns // 10**6 >> 16:08x}-{ns // 10**6 & 0xFFFF:04x}-7000-8000-000000000009"
        ledger.intent(ledger_rows.intent(lost, admitted_ns=ns))
        ledger.progress(ledger_rows.progress(lost))
        await ledger.record_egress(ledger_rows.egress("forgotten", lost, at_ns=ns))
        await ledger.close()

    asyncio.run(write())


async def use(gateway: Running, upstream: rec.Recorder) -> None:
    """Requests of every end."""
    json_wanted = {
        "messages": [{"role": "user", "content": LABEL}],
        "response_format": {"type": "json_object"},
    }
    assert (await gateway.chat(**json_wanted)).headers["x-weighbridge-attempts"] == "2"
    assert (await gateway.chat(model="local-8b")).status_code == 200
    assert (await gateway.chat(model="commercial")).status_code == 200
    upstream.script(rec.NO_USAGE)
    assert (await gateway.chat(model="commercial", stream=True)).status_code == 200
    upstream.script(rec.STATUS_500)
    await gateway.chat(model="commercial")
    assert (await gateway.chat(model="no-such")).status_code == 404
    for model in ("local-70b", "commercial"):
        upstream.script(rec.slow(50))
        async with gateway.client.stream(
            "POST",
            "/v1/chat/completions",
            json={
                "model": model,
                "stream": True,
                "messages": [{"role": "user", "content": "one two three four five six seven"}],
            },
        ) as answer:
            async for line in answer.aiter_lines():
                if "content" in line:
                    break
    await until(lambda: all(row["outcome"] is not None for row in gateway.rows()))


@pytest.mark.parametrize("currency", ["USD", "KRW"])
def test_booked_reported_and_recomputed_are_the_same(
    tmp_path: Path, currency: str, capsys: pytest.CaptureFixture[str]
) -> None:
    now = time.time_ns()
    changes = (now // SECOND - 3600) * SECOND
    file = prices(tmp_path, currency, changes)
    table = CostTable(load_prices(file))
    earlier(tmp_path / "state", BookPricer(table), changes - 3600 * SECOND)

    async def run() -> Path:
        engines = {
            "local-8b": Saying("This is no JSON at all"),
            "local-70b": Saying('{"label": "positive and a long one that takes a while"}', road="local-70b"),
        }
        policy = policy_file(tmp_path, tasks={"classification": {"road": "local-8b", **ESCALATES}})
        async with (
            recording() as upstream,
            running_gateway(
                tmp_path,
                engines=engines,
                upstream=upstream.base_url,
                policy=policy,
                commercial={"model": "gpt-4o"},
                prices={"file": str(file)},
            ) as gateway,
        ):
            await use(gateway, upstream)
            # Beside a gateway that runs.
            with closing(open_readonly(gateway.state_dir / LEDGER_FILE)) as conn:
                conn.row_factory = None
                assert read_savings(conn, table, Window()).gaps.lost == 1
        return gateway.state_dir

    state = asyncio.run(run())
    window = [
        "--since",
        instant_text(changes - 7200 * SECOND),
        "--until",
        instant_text(changes + 86_400 * SECOND),
    ]
    with closing(open_readonly(state / LEDGER_FILE)) as conn:
        conn.row_factory = None
        report = read_savings(conn, table, Window(changes - 7200 * SECOND, changes + 86_400 * SECOND))
    assert cli.main(["usage", "export", "--state-dir", str(state), *window]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = recompute(lines, file.read_text(), changes - 7200 * SECOND, changes + 86_400 * SECOND)
    assert as_recomputed(report) == found

    # The records themselves were booked to the same nano, late parts too.
    records = [json.loads(line) for line in lines]
    requests = [record for record in records if record["record"] == "request"]
    book = yaml.load(file.read_text(), Loader=yaml.BaseLoader)
    for request in requests:
        costs = [cost_of(book, attempt) for attempt in request["attempts"]]
        assert [attempt["cost_nano"] for attempt in request["attempts"]] == costs
        known = [cost for cost in costs if cost is not None]
        assert request["cost_nano"] == (sum(known) if known or not costs else None)
        assert (request["currency"], request["price_version"]) == (currency, table.version)

    # Every kind was there.
    outcomes = {request["outcome"] for request in requests}
    assert outcomes >= {"ok", "client_aborted", "lost"}
    ends = {attempt["outcome"] for request in requests for attempt in request["attempts"]}
    assert ends >= {"ok", "escalated_invalid_json", "upstream_status", "cancelled"}
    gaps = report.gaps
    assert (gaps.lost, gaps.sent_without_record) == (1, 1)
    assert gaps.usage_untold >= 1 and gaps.unpriced == gaps.usage_untold + gaps.sent_without_record
    assert report.totals.in_vain_nano > 0 and report.totals.unanswered_nano >= 0
    assert {tier.road for tier in report.tiers} == {"local-8b", "local-70b"}
    assert all(tier.capacity_nano > 0 for tier in report.tiers)
