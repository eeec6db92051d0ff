"""`weighbridge usage` and `weighbridge prices`: exit statuses, and what they say in each form."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.support import ledger_rows as rows
from weighbridge.config.clock import SystemClock
from weighbridge.config.prices import SHIPPED_PRICES, load_prices, shipped_prices
from weighbridge.gateway import cli
from weighbridge.observability import ledger_rollups
from weighbridge.observability.costs import CostTable
from weighbridge.observability.ledger import Ledger
from weighbridge.observability.ledger_read import LEDGER_FILE
from weighbridge.observability.ledger_retention import prune
from weighbridge.observability.price_pricer import BookPricer
from weighbridge.observability.records import Capacity

AT = 1_767_225_600_000_000_000  # 2026-01-01
SECOND = 1_000_000_000
HOUR = 3600 * SECOND


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("WEIGHBRIDGE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """What a gateway leaves: two local answers and a commercial one on one day, and an hour of a worker."""
    folder = tmp_path / "state"
    fill(folder)
    return folder


def fill(folder: Path, prices: Path = SHIPPED_PRICES) -> None:
    async def run() -> None:
        pricer = BookPricer(CostTable(load_prices(prices)))
        ledger = Ledger.open(
            folder / LEDGER_FILE, clock=SystemClock(), chain_key=rows.CHAIN_KEY, pricer=pricer
        )
        for n, (tenant, road) in enumerate(
            (("acme", "local-8b"), ("은행", "local-8b"), ("acme", "commercial"))
        ):
            at = AT + n * 60 * SECOND
            name = f"{at // 10**6 >> 16:08x}-{at // 10**6 & 0xFFFF:04x}-7000-8000-00000000000{n}"
            outward = road == "commercial"
            ledger.intent(rows.intent(name, admitted_ns=at, tenant=tenant, road=road))
            ledger.attempt(
                rows.attempt(
                    name,
                    road=road,
                    started_ns=at,
                    prompt_tokens=1_000_000,
                    worker_us=0 if outward else 3_600_000,
                    backend="main" if outward else "w0",
                    model="gpt-4o",
                    egress_id="e" if outward else "",
                )
            )
            await ledger.completion(
                rows.completion(
                    name, ended_ns=at + SECOND, total_ms=1000.0, road=road, prompt_tokens=1_000_000
                )
            )
        ledger.capacity(Capacity("local-8b", "w0", AT, AT + HOUR, 8))
        await ledger.close()

    asyncio.run(run())


def usage(state: Path, *argv: str) -> int:
    try:
        return cli.main(["usage", argv[0], "--state-dir", str(state), *argv[1:]])
    except SystemExit as ended:
        assert isinstance(ended.code, int)
        return ended.code


def told(state: Path, capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert usage(state, *argv) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def as_rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_report(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = told(state, capsys, "report").splitlines()
    assert table[0].split()[:3] == ["tenant", "road", "requests"]
    assert [line.split()[:3] for line in table[1:5]] == [
        ["acme", "commercial", "1"],
        ["acme", "local-8b", "1"],
        ["은행", "local-8b", "1"],
        ["total", "3", "3"],
    ]
    assert table[-1] == f"booked by: {shipped_prices().version}"
    # Korean letters take two columns, so that the numbers stand below each other.
    assert table[2].index("local-8b") == table[3].index("local-8b") + len("은행")


def test_report_as_csv_and_json(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_rows(told(state, capsys, "report", "--by", "day,tenant,road,task", "--format", "csv"))
    whole = json.loads(told(state, capsys, "report", "--by", "all", "--format", "json"))
    (total,) = whole["rows"]
    assert whole["total"] == whole["rows"]
    assert total["requests"] == sum(int(row["requests"]) for row in found) == 3
    for amount in ("cost", "counterfactual"):
        assert Decimal(total[amount]) == sum(Decimal(row[amount]) for row in found)
    assert {row["day"] for row in found} == {"2026-01-01"}
    assert told(state, capsys, "report", "--since", "2026-01-02", "--format", "csv").count("\n") == 1
    assert told(state, capsys, "report", "--until", "2026-01-01", "--format", "csv").count("\n") == 1
    assert told(state, capsys, "report", "--until", "2026-01-02", "--format", "csv").count("\n") == 4


def test_savings_add_up_in_every_form(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_rows(told(state, capsys, "savings", "--format", "csv"))
    *parts, total = found
    assert [row["line"] for row in found] == ["requests"] * 3 + ["idle", "total"]
    columns = (
        "counterfactual",
        "counterfactual_unpriced",
        "commercial",
        "local",
        "idle",
        "in_vain",
        "unanswered",
    )
    for column in (*columns, "saved"):
        assert sum(Decimal(row[column]) for row in parts) == Decimal(total[column]), column
    whole = json.loads(told(state, capsys, "savings", "--format", "json"))
    assert whole["totals"]["saved"] == total["saved"]
    (tier,) = whole["tiers"]
    assert Decimal(tier["used"]) + Decimal(tier["idle"]) - Decimal(tier["beyond"]) == Decimal(
        tier["capacity"]
    )
    text = told(state, capsys, "savings")
    assert "EXAMPLE" in text and "capacity = worker hours x rate = used + idle - beyond" in text
    assert "Savings against gpt-4o, 2026-01-01 up to 2026-01-01T01:00:00Z (UTC), in USD" in text
    assert "assumed: a local token is 0.75 tokens of gpt-4o" in text
    assert "Break-even: " in text
    whole = json.loads(told(state, capsys, "savings", "--format", "json"))
    saved, at = (float(whole["totals"][name]) for name in ("saved", "counterfactual"))
    assert f"That is {100 * saved / at:.1f} % of what gpt-4o would have cost" in text
    assert "of it by the local tiers with their idle time" in text and "by the commercial road alone" in text


def test_a_loss_is_said(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = told(state, capsys, "savings", "--since", "2026-01-01T00:30:00Z")
    assert "saved                       -$0.63\n" in text
    assert "Nothing was saved: this cost $0.63 more than gpt-4o would have." in text


def test_won(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prices = tmp_path / "won.yaml"
    prices.write_text(SHIPPED_PRICES.read_text().replace("currency: USD      ", "currency: KRW      ", 1))
    state = tmp_path / "state"
    fill(state, prices)
    assert "₩" in told(state, capsys, "report") and "$" not in told(state, capsys, "report")
    text = told(state, capsys, "savings", "--prices", str(prices))
    assert "₩1,854" in text and "EXAMPLE" not in text  # an hour of a worker
    # By another book than the one they were booked by: reckoned anew, and said.
    text = told(state, capsys, "savings")
    assert f"3 requests were booked by {load_prices(prices).version}: ₩" in text and "in USD" in text


def test_what_has_no_price_is_shouted(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with closing(sqlite3.connect(state / LEDGER_FILE)) as conn, conn:
        conn.execute("UPDATE attempts SET model = 'unheard-of' WHERE road = 'commercial'")
    text = told(state, capsys, "savings")
    assert "UNPRICED: 1 attempts have no known cost; more was spent than is said here." in text
    assert "1 attempts at unheard-of, which the price book does not know on that day" in text


def test_export(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.loads(line) for line in told(state, capsys, "export").splitlines()]
    assert [line["record"] for line in lines] == ["export", *["request"] * 3, "capacity"]
    assert lines[0]["form"] == 1
    assert lines[1]["attempts"][0]["worker_us"] == 3_600_000
    assert all("reasons" not in line and "error_code" not in line for line in lines)
    late = told(state, capsys, "export", "--since", "2026-01-01T00:02:00Z").splitlines()
    assert [json.loads(line)["record"] for line in late] == ["export", "request", "capacity"]


def bill(tmp_path: Path, amount: str, more: str = "") -> str:
    file = tmp_path / "bill.csv"
    file.write_text(f"date,model,amount,currency\n2026-01-01,gpt-4o,{amount},USD\n{more}")
    return str(file)


def test_reconcile(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # A million prompt tokens and 20 of an answer.
    out = told(state, capsys, "reconcile", bill(tmp_path, "2.50"))
    assert out.endswith("The bill agrees with the records within 0.01 USD and 0 %.\n")
    assert usage(state, "reconcile", bill(tmp_path, "2.52")) == 1
    out = capsys.readouterr().out
    assert "DIFFERS" in out and "does not agree" in out
    assert usage(state, "reconcile", bill(tmp_path, "2.52"), "--tolerance", "0.05") == 0
    assert usage(state, "reconcile", bill(tmp_path, "2.52"), "--percent", "1") == 0
    assert usage(state, "reconcile", bill(tmp_path, "2.50"), "--tolerance", "0") == 1
    capsys.readouterr()
    assert usage(state, "reconcile", bill(tmp_path, "2.51"), "--format", "json") == 0
    whole = json.loads(capsys.readouterr().out)
    assert whole["agrees"] and whole["total"]["difference"] == "0.009800000"
    assert usage(state, "reconcile", bill(tmp_path, "9"), "--format", "csv") == 1
    day, total = as_rows(capsys.readouterr().out)
    assert (day["beyond_tolerance"], total["billed"]) == ("true", "9.000000000")


def test_small_differences_may_come_to_a_large_one(
    state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = "".join(f"2026-01-{day:02d},gpt-4o,0.009,USD\n" for day in range(2, 32))
    assert usage(state, "reconcile", bill(tmp_path, "2.50", more)) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "DIFFERS" in line] == [
        line for line in lines if line.startswith("total")
    ]


def test_a_bill_that_cannot_be_read(state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert usage(state, "reconcile", str(tmp_path / "none.csv")) == 2
    assert "none.csv: cannot be read: No such file" in capsys.readouterr().err
    assert usage(state, "reconcile", bill(tmp_path, "much")) == 2
    assert "bill.csv:2: amount: must be a number" in capsys.readouterr().err
    assert usage(state, "reconcile", bill(tmp_path, "1"), "--currency", "KRW") == 2
    assert usage(state, "reconcile", bill(tmp_path, "1"), "--tolerance", "-1") == 2


@pytest.mark.parametrize("command", ["report", "savings", "export"])
def test_a_ledger_that_is_not_there_or_old_or_broken(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert usage(tmp_path, command) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert not (tmp_path / LEDGER_FILE).exists()
    with closing(sqlite3.connect(tmp_path / LEDGER_FILE)) as conn:
        conn.execute("PRAGMA user_version = 2")
    assert usage(tmp_path, command) == 2
    assert "is of an earlier version" in capsys.readouterr().err
    (tmp_path / LEDGER_FILE).write_bytes(b"no database" * 1000)
    assert usage(tmp_path, command) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        ("report", "--by", "model"),
        ("report", "--by", "day,day"),
        ("report", "--since", "2026-01-01T00:00:00Z"),
        ("savings", "--since", "2026-02-30"),
        ("savings", "--format", "yaml"),
        ("savings", "--prices", "/no/such/file"),
    ],
)
def test_a_command_line_that_is_wrong(
    state: Path, argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert usage(state, *argv) == 2
    assert capsys.readouterr().out == ""


def test_prices_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # These are for a whole process.
    monkeypatch.setattr("weighbridge.gateway.serve.setup_logging", lambda **_: None)
    monkeypatch.setattr("weighbridge.gateway.serve.forbid_core_dumps", lambda: None)
    assert cli.main(["prices", "check"]) == 0
    out = capsys.readouterr().out
    assert shipped_prices().version in out and "EXAMPLE" in out
    assert "$1.26" in out and "gpt-4o-mini" in out
    file = tmp_path / "p.yaml"
    file.write_text(SHIPPED_PRICES.read_text().replace("input: 2.50", "input: -2.50", 1))
    assert cli.main(["prices", "check", str(file)]) == 2
    place = f"{file}:19:42: commercial.gpt-4o[0].input: must not be negative\n"
    assert capsys.readouterr().err == place
    settings = tmp_path / "s.yaml"
    settings.write_text(f"prices:\n  file: {file}\n")
    assert cli.main(["check", "--config", str(settings)]) == 2
    assert place in capsys.readouterr().err
    for command in (["usage", "savings"], ["serve", "--state-dir", str(tmp_path / "state")]):
        assert cli.main([*command, "--config", str(settings)]) == 2
        assert place in capsys.readouterr().err
    assert not (tmp_path / "state" / LEDGER_FILE).exists()


def test_they_import_nothing_heavy_and_change_nothing(state: Path) -> None:
    before = {file.name: file.read_bytes() for file in state.iterdir() if not file.name.endswith("-shm")}
    program = (
        "import sys\n"
        "from weighbridge.gateway.cli import main\n"
        f"status = [main(['usage', name, '--state-dir', {str(state)!r}]) for name in ('report', 'savings', 'export')]\n"
        "heavy = {'torch', 'vllm', 'transformers', 'presidio_analyzer', 'spacy', 'fastapi', 'uvicorn', 'aiohttp'}\n"
        "print(status, sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[0, 0, 0] []"
    after = {file.name: file.read_bytes() for file in state.iterdir()}
    assert {name: after[name] for name in before} == before


def test_beside_a_gateway_that_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = tmp_path / "state"
    fill(state)

    async def run() -> Any:
        ledger = Ledger.open(state / LEDGER_FILE, clock=SystemClock(), chain_key=rows.CHAIN_KEY)
        await ledger.completion(rows.completion("late", ended_ns=AT + HOUR, total_ms=0.0))
        assert usage(state, "report", "--by", "all", "--format", "json") == 0
        await ledger.close()

    asyncio.run(run())
    assert sum(row["requests"] for row in json.loads(capsys.readouterr().out)["rows"]) == 4


def test_records_that_are_no_longer_kept_are_said(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no longer kept" not in told(state, capsys, "savings")
    with closing(sqlite3.connect(state / LEDGER_FILE, isolation_level=None)) as conn:
        ledger_rollups.roll(conn)
        assert prune(conn, AT + HOUR, keep_unshipped=False, most=2) == 2
    text = told(state, capsys, "savings")
    assert "2 requests are no longer kept: the report knows their workers' time only, as idle" in text
    assert "no longer kept" not in told(state, capsys, "savings", "--since", "2026-01-02")
    report = told(state, capsys, "report", "--by", "all", "--format", "json")
    assert json.loads(report)["rows"][0]["requests"] == 3
