"""Public suffixes without a network: the list that comes with the package."""

from __future__ import annotations

from functools import cache

import tldextract


@cache
def offline() -> tldextract.TLDExtract:
    """Asks nobody; tldextract's own default would fetch lists at its first use."""
    return tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)
