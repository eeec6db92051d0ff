"""The only form in which a request may leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from weighbridge.masking.vault import Vault


@dataclass(frozen=True, slots=True)
class MaskedRequest:
    """A masked request, built by `Masker.mask` alone.

    Args:
        request_id: the id made at admission.
        body: the final bytes for the commercial API.
        seal: proves that masking made exactly this; see `seal.verify`.
        stream: whether the answer comes as Server-Sent Events.
        entities: distinct masked values by type.
        detector_version: which detectors and rules looked at it.
        body_hash: keyed SHA-256 of `body` in hex, for the egress record.
        vault: what the placeholders stand for; stays in this process.
    """

    request_id: str
    body: bytes = field(repr=False)
    seal: bytes = field(repr=False)
    stream: bool
    entities: Mapping[str, int]
    detector_version: str
    body_hash: str
    vault: Vault
