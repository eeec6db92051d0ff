"""The pages on masking name every type and every reason there is, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from weighbridge.config.masking_section import LayerName
from weighbridge.masking.entities import TYPES
from weighbridge.masking.errors import REASONS
from weighbridge.masking.layers.registry import OPTIONAL

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "docs/masking.md", ROOT / "docs/ko/masking.md"]


@pytest.mark.parametrize("page", PAGES, ids=["en", "ko"])
def test_every_type_and_reason_is_told(page: Path) -> None:
    told = set(re.findall(r"`([A-Za-z_]+)`", page.read_text(encoding="utf-8")))
    assert set(TYPES) <= told
    assert set(REASONS) <= told


@pytest.mark.parametrize("page", PAGES, ids=["en", "ko"])
def test_no_table_tells_of_one_that_is_gone(page: Path) -> None:
    rows = [
        line.split("|")[1] for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `")
    ]
    words = [word for row in rows for word in re.findall(r"`([A-Za-z_-]+)`", row)]
    assert set(words) <= {*TYPES, *REASONS, *OPTIONAL}


def test_the_settings_know_the_layers() -> None:
    assert set(LayerName.__args__) == set(OPTIONAL)  # type: ignore[attr-defined]
