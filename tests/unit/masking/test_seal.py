"""The seal."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from weighbridge.masking.request import MaskedRequest
from weighbridge.masking.seal import seal_request, verify
from weighbridge.masking.vault import Vault


def _sealed() -> MaskedRequest:
    return seal_request(
        request_id="r1",
        body=b'{"model":"m"}',
        stream=False,
        entities={"NUM": 1},
        detector_version="d1",
        body_hash="00",
        vault=Vault({"[NUM_ABCDEFGH]": "1234567"}),
    )


def test_an_untouched_request_verifies() -> None:
    assert verify(_sealed())


@pytest.mark.parametrize(
    "change",
    [
        {"body": b'{"model":"n"}'},
        {"body": b""},
        {"request_id": "r2"},
        {"stream": True},
        {"entities": {}},
        {"detector_version": "d2"},
        {"body_hash": "01"},
        {"seal": b""},
        {"seal": bytes(32)},
    ],
)
def test_any_change_breaks_it(change: dict[str, object]) -> None:
    assert not verify(dataclasses.replace(_sealed(), **change))


def test_changing_the_counts_in_place_breaks_it() -> None:
    masked = _sealed()
    assert isinstance(masked.entities, dict)
    masked.entities["NUM"] = 0
    assert not verify(masked)


def test_a_seal_is_worth_nothing_in_another_process() -> None:
    program = (
        "from weighbridge.masking.seal import seal_request\nfrom weighbridge.masking.vault import Vault\n"
        "m = seal_request(request_id='r1', body=b'{\"model\":\"m\"}', stream=False, entities={'NUM': 1}, "
        "detector_version='d1', body_hash='00', vault=Vault({}))\nprint(m.seal.hex())"
    )
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not verify(dataclasses.replace(_sealed(), seal=bytes.fromhex(other.stdout.strip())))


def test_text_does_not_show() -> None:
    shown = repr(_sealed())
    assert "model" not in shown
    assert "1234567" not in shown
