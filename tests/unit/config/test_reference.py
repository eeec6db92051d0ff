"""The configuration reference is generated: the committed page is what the schema says today."""

from __future__ import annotations

from pathlib import Path

from weighbridge.config import reference
from weighbridge.config.settings import Settings
from weighbridge.config.shape import leaves

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "configuration.md"


def test_the_committed_page_is_the_generated_one() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference.render(), (
        "run: python -m weighbridge.config.reference docs/reference/configuration.md"
    )


def test_every_field_is_described_and_on_the_page() -> None:
    page = reference.render()
    for leaf in leaves(Settings):
        assert leaf.slot.field is not None
        assert leaf.slot.field.description, leaf.path
        assert f"| `{reference.path_of(leaf.path)}` |" in page


def test_durations_and_sizes_name_their_unit() -> None:
    for leaf in leaves(Settings):
        words = (leaf.slot.field.description or "").lower() if leaf.slot.field is not None else ""
        for suffix, unit in (
            ("_s", "second"),
            ("_bytes", "bytes"),
            ("_ms", "millisecond"),
            ("_tokens", "token"),
        ):
            if leaf.path[-1].endswith(suffix):
                assert unit in words, leaf.path


def test_the_module_writes_the_page(tmp_path: Path) -> None:
    target = tmp_path / "page.md"
    assert reference.main([str(target)], reference.render()) == 0
    assert target.read_text(encoding="utf-8") == reference.render()
