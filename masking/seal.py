"""The seal on a masked request.

Python cannot forbid anybody to build or change a `MaskedRequest`; the seal makes the gate notice. Its key is random,
lives in this module and changes with every process.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping

import msgspec

from weighbridge.masking.request import MaskedRequest
from weighbridge.masking.vault import Vault

_KEY = secrets.token_bytes(32)


def seal_request(
    *,
    request_id: str,
    body: bytes,
    stream: bool,
    entities: Mapping[str, int],
    detector_version: str,
    body_hash: str,
    vault: Vault,
) -> MaskedRequest:
    """Seal the final bytes and what is recorded about them."""
    seal = _mac(request_id, body, stream, entities, detector_version, body_hash)
    return MaskedRequest(request_id, body, seal, stream, entities, detector_version, body_hash, vault)


def verify(masked: MaskedRequest) -> bool:
    """Whether this is, unchanged, what masking sealed in this process. Constant time in the seal."""
    expected = _mac(
        masked.request_id,
        masked.body,
        masked.stream,
        masked.entities,
        masked.detector_version,
        masked.body_hash,
    )
    return hmac.compare_digest(expected, masked.seal)


def _mac(
    request_id: str,
    body: bytes,
    stream: bool,
    entities: Mapping[str, int],
    detector_version: str,
    body_hash: str,
) -> bytes:
    mac = hmac.new(_KEY, digestmod=hashlib.sha256)
    head = msgspec.msgpack.encode((request_id, stream, sorted(entities.items()), detector_version, body_hash))
    mac.update(len(head).to_bytes(8, "big"))
    mac.update(head)
    mac.update(body)
    return mac.digest()
