"""Usage and savings over the admin API: typed, paged, refused like everything else."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support import ledger_rows as rows
from tests.unit.gateway.test_api import ADMIN, KEY, World, world
from weighbridge.config.clock import SystemClock
from weighbridge.config.prices import SHIPPED_PRICES, shipped_prices
from weighbridge.gateway import admin_usage
from weighbridge.gateway.admin_usage_schema import SavingsView, UsageView
from weighbridge.observability.costs import CostTable
from weighbridge.observability.ledger import Ledger
from weighbridge.observability.ledger_read import LEDGER_FILE
from weighbridge.observability.money import told
from weighbridge.observability.price_pricer import BookPricer
from weighbridge.observability.records import Capacity
from weighbridge.observability.savings_job import run_job

AT = 1_767_225_600_000_000_000  # 2026-01-01
SECOND = 1_000_000_000


async def filled(folder: Path) -> World:
    """A gateway with two tenants' requests on two days, and an hour of a worker."""
    pricer = BookPricer(CostTable(shipped_prices()))
    ledger = Ledger.open(folder / LEDGER_FILE, clock=SystemClock(), chain_key=rows.CHAIN_KEY, pricer=pricer)
    for n, tenant in enumerate(("acme", "acme", "bank")):
        at = AT + n * 43_200 * SECOND
        name = f"{at // 10**6 >> 16:08x}-{at // 10**6 & 0xFFFF:04x}-7000-8000-00000000000{n}"
        ledger.intent(rows.intent(name, admitted_ns=at, tenant=tenant))
        ledger.attempt(
            rows.attempt(name, started_ns=at, prompt_tokens=1000, worker_us=3_600_000, backend="w0")
        )
        await ledger.completion(
            rows.completion(name, ended_ns=at + SECOND, total_ms=1000.0, prompt_tokens=1000)
        )
    ledger.capacity(Capacity("local-8b", "w0", AT, AT + 3600 * SECOND, 8))
    await ledger.completion(rows.completion("last", ended_ns=AT, total_ms=0.0, outcome="refused", attempts=0))
    await ledger.close()
    return world(folder)


async def get(here: World, path: str) -> dict[str, Any]:
    answer = await here.get(path)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_usage(tmp_path: Path) -> None:
    here = await filled(tmp_path)
    told = await get(here, "/admin/v1/usage?by=tenant")
    UsageView.model_validate(told)
    assert [(row["tenant"], row["day"], row["requests"]) for row in told["rows"]] == [
        ("", None, 1),
        ("acme", None, 2),
        ("bank", None, 1),
    ]
    (total,) = told["total"]
    assert (total["requests"], total["answered"], total["prompt_tokens"]) == (4, 3, 3010)
    # Each attempt had a thousandth of an hour at 1.2585525114155 dollars.
    assert total["cost"] == "0.003775659"
    assert told["price_versions"] == [shipped_prices().version]
    one = await get(here, "/admin/v1/usage?by=day,tenant&since=2026-01-02&until=2026-01-03")
    assert [(row["day"], row["tenant"]) for row in one["rows"]] == [("2026-01-02", "bank")]
    assert (await get(here, "/admin/v1/usage?by="))["rows"] == told["total"]


async def test_usage_page_by_page(tmp_path: Path) -> None:
    here = await filled(tmp_path)
    whole = await get(here, "/admin/v1/usage?by=day,tenant")
    assert whole["next_after"] is None
    seen: list[Any] = []
    after: int | None = 0
    while after is not None:
        page = await get(here, f"/admin/v1/usage?by=day,tenant&limit=1&after={after}")
        assert len(page["rows"]) == 1 and page["total"] == whole["total"]
        seen += page["rows"]
        after = page["next_after"]
    assert seen == whole["rows"]


async def test_a_page_is_made_of_its_own_rows_and_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = await filled(tmp_path)
    seen: list[tuple[int, bool]] = []

    def noted(report: Any) -> dict[str, Any]:
        seen.append((len(report.rows), threading.current_thread() is threading.main_thread()))
        return told(report)

    monkeypatch.setattr(admin_usage, "told", noted)
    page = await get(here, "/admin/v1/usage?by=day,tenant&limit=2")
    assert (len(page["rows"]), page["next_after"]) == (2, 2)
    assert seen == [(2, False)]


async def test_savings(tmp_path: Path) -> None:
    here = await filled(tmp_path)
    told = await get(here, "/admin/v1/savings?since=2026-01-01&until=2026-01-03")
    SavingsView.model_validate(told)
    (tier,) = told["tiers"]
    assert (tier["capacity"], tier["used"], tier["idle"]) == ("1.258552511", "0.003775659", "1.254776852")
    assert told["totals"]["saved"].startswith("-1.2")
    part = await get(here, "/admin/v1/savings?since=2026-01-01T09:00:00+09:00&until=2026-01-01T00:30:00Z")
    assert part["tiers"][0]["up_ns"] == 1800 * SECOND
    assert part["from_ns"] == AT


@pytest.mark.parametrize(
    "query",
    [
        "usage?by=model",
        "usage?by=day,day",
        "usage?by=day&by=road",
        "usage?since=yesterday",
        "usage?since=2026-01-01T00:00:00Z",
        "usage?limit=0",
        "usage?limit=1001",
        "usage?after=-1",
        "savings?since=yesterday",
        "savings?since=2026-01-02&until=2026-01-01",
        "savings?since=2026-01-01&until=2026-03-01",
    ],
)
async def test_refused(tmp_path: Path, query: str) -> None:
    answer = await world(tmp_path).get(f"/admin/v1/{query}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_parameter")


async def test_only_for_admins(tmp_path: Path) -> None:
    here = world(tmp_path, keyed=True)
    for path in ("/admin/v1/usage", "/admin/v1/savings"):
        for key, status in ((None, 401), (KEY, 401), (ADMIN, 503)):
            headers = {} if key is None else {"authorization": f"Bearer {key}"}
            assert (await here.client.get(path, headers=headers)).status_code == status


async def test_a_ledger_that_cannot_be_read(tmp_path: Path) -> None:
    here = world(tmp_path)
    (tmp_path / LEDGER_FILE).write_bytes(b"no database at all" * 100)
    for path in ("/admin/v1/usage", "/admin/v1/savings"):
        answer = await here.get(path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "usage_unreadable")
        assert answer.headers["retry-after"] == "5"


async def test_a_report_that_takes_too_long_ends_with_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = world(tmp_path)
    started: list[asyncio.subprocess.Process] = []
    start = asyncio.create_subprocess_exec

    async def noted(*args: Any, **more: Any) -> asyncio.subprocess.Process:
        started.append(await start(*args, **more))
        return started[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    monkeypatch.setattr(admin_usage, "TIMEOUT_S", 0.001)
    assert (await here.get("/admin/v1/savings")).status_code == 503
    (process,) = started
    assert process.returncode == -signal.SIGKILL


async def test_a_second_report_is_refused_while_one_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = await filled(tmp_path)
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def held(*args: Any) -> dict[str, Any]:
        begun.set()
        await go_on.wait()
        return await run_job(*args)

    monkeypatch.setattr(admin_usage, "run_job", held)
    first = asyncio.create_task(here.get("/admin/v1/savings"))
    await begun.wait()
    async with asyncio.timeout(20):  # it would wait for the first
        second = await here.get("/admin/v1/savings")
    assert (second.status_code, second.json()["error"]["code"]) == (429, "report_under_way")
    assert second.headers["retry-after"] == "5"
    go_on.set()
    assert (await first).status_code == 200
    assert (await here.get("/admin/v1/savings")).status_code == 200


@pytest.mark.parametrize("content", ["name: broken\ncurrency: EUR\n", None])
async def test_a_price_file_that_broke_is_named_as_the_cause(tmp_path: Path, content: str | None) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_bytes(SHIPPED_PRICES.read_bytes())
    here = world(tmp_path, prices={"file": str(prices)})
    if content is None:
        prices.unlink()
    else:
        prices.write_text(content)
    answer = await here.get("/admin/v1/savings")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "prices_unusable")


async def test_both_are_in_the_schema(tmp_path: Path) -> None:
    schema = (await world(tmp_path).get("/openapi.json")).json()
    for path, view in (("/admin/v1/usage", "UsageView"), ("/admin/v1/savings", "SavingsView")):
        answer = schema["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        assert answer == {"$ref": f"#/components/schemas/{view}"}
