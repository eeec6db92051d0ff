"""What has no price is warned of, at a start and by `weighbridge check`."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_engine import FakeEngine
from weighbridge.config.prices import SHIPPED_PRICES, shipped_prices
from weighbridge.config.settings import load_settings
from weighbridge.gateway import cli
from weighbridge.gateway.parts import build_parts
from weighbridge.gateway.unpriced import unpriced
from weighbridge.observability.costs import CostTable

NOW = 1_798_761_600_000_000_000  # 2027-01-01
COMMERCIAL = {
    "base_url": "http://127.0.0.1:1/v1",
    "model": "big-model",
    "endpoints": {
        "priced": {"base_url": "http://127.0.0.1:2/v1", "model": "gpt-4o"},
        "spare": {"base_url": "http://127.0.0.1:3/v1", "model": "other"},
    },
}
TOLD = "its cost will be unknown, and its answers count as no saving"


def test_each_model_and_tier_without_a_price_today(tmp_path: Path) -> None:
    settings = load_settings(env={}, overrides={"commercial": COMMERCIAL})
    table = CostTable(shipped_prices())
    assert unpriced(settings, table, NOW) == [
        f"commercial.model: the price book has no price for big-model on 2027-01-01: {TOLD}",
        f"commercial.endpoints.spare.model: the price book has no price for other on 2027-01-01: {TOLD}",
    ]
    # Before the first entry of anything.
    early = unpriced(settings, table, 0)
    assert len(early) == 3 + len(settings.tiers)
    assert f"tiers.local-8b: the price book has no price for local-8b on 1970-01-01: {TOLD}" in early


@pytest.mark.parametrize("as_json", [True, False])
def test_check_warns_and_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    config = tmp_path / "weighbridge.yaml"
    whole: dict[str, Any] = {"commercial": COMMERCIAL, "prices": {"file": str(SHIPPED_PRICES)}}
    config.write_text(json.dumps(whole))
    assert cli.main(["check", "--config", str(config), *(["--json"] if as_json else [])]) == 0
    told = capsys.readouterr()
    lines = json.loads(told.out)["warnings"] if as_json else told.err.splitlines()
    assert len(lines) == 2
    assert "commercial.model: the price book has no price for big-model on " in lines[0]
    assert as_json or lines[0].startswith("warning: ")


async def test_a_start_warns(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = {"commercial": COMMERCIAL, "state_dir": str(tmp_path / "state")}
    settings = load_settings(env={}, overrides=given)
    with caplog.at_level(logging.WARNING, "weighbridge.gateway"):
        parts = build_parts(settings, engine_factory=lambda road, *_: FakeEngine(road))
    parts.ledger.close_sync()
    parts.state.close()
    told = [record.getMessage() for record in caplog.records if "has no price for" in record.getMessage()]
    assert [line.split(":")[0] for line in told] == ["commercial.model", "commercial.endpoints.spare.model"]
