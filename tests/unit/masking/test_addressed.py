"""A mask made for one model goes out to another: nothing but the model's name may change."""

from __future__ import annotations

import dataclasses
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.masking.fakes import Children
from weighbridge.config.clock import SystemClock
from weighbridge.config.deadline import Deadline
from weighbridge.config.settings import MaskingSettings
from weighbridge.masking.masker import Masker, keyed_hash
from weighbridge.masking.request import MaskedRequest
from weighbridge.masking.seal import verify
from weighbridge.masking.secret import Secrets
from weighbridge.masking.vault import derive_key

CLOCK = SystemClock()
BODY: dict[str, Any] = {
    "model": "auto",
    "messages": [
        {"role": "system", "content": 'model "auto" 가나다 \u2028 😀'},
        {"role": "user", "content": "XXsecretXX said hello"},
    ],
    "stream": True,
    "temperature": 0.1,
    "top_p": 1.0,
    "seed": 9007199254740993,
    "max_tokens": 5,
    "tools": [
        {
            "type": "function",
            "function": {"name": "f", "parameters": {"properties": {"model": {"type": "string"}}}},
        }
    ],
}


@pytest.fixture
async def masker() -> AsyncIterator[Masker]:
    settings = MaskingSettings(layers=[], without_names="mask")
    made = Masker(settings, CLOCK, start_child=Children().start, secrets=Secrets.random())
    await made.start()
    yield made
    await made.close()


async def mask(masker: Masker, upstream_model: str = "first") -> MaskedRequest:
    return await masker.mask(
        BODY,
        request_id="r1",
        upstream_model=upstream_model,
        conversation="t/c",
        deadline=Deadline.after(CLOCK, 10),
    )


@pytest.mark.parametrize("model", ["second", "f", "a/model:with.signs", 'quote"back\\slash', "x" * 256])
async def test_only_the_model_differs(masker: Masker, model: str) -> None:
    masked = await mask(masker)
    other = masker.addressed(masked, model)
    assert other.body == masked.body.replace(b'"model":"first"', b'"model":' + json.dumps(model).encode(), 1)
    assert json.loads(other.body) == {**json.loads(masked.body), "model": model}
    for field in dataclasses.fields(MaskedRequest):
        if field.name not in ("body", "seal", "body_hash"):
            assert getattr(other, field.name) is getattr(masked, field.name), field.name
    assert b"XXsecretXX" not in other.body


async def test_it_is_what_masking_for_that_model_would_have_made(masker: Masker) -> None:
    other, same = masker.addressed(await mask(masker), "second"), await mask(masker, "second")
    assert (other.body, other.body_hash, other.entities) == (same.body, same.body_hash, same.entities)
    back = masker.addressed(other, "first")
    assert back.body == (await mask(masker)).body and verify(back)


async def test_it_is_sealed_and_hashed_anew(masker: Masker) -> None:
    masked = await mask(masker)
    other = masker.addressed(masked, "second")
    assert verify(other) and verify(masked), "the first one goes on as it is"
    assert other.seal != masked.seal and other.body_hash != masked.body_hash
    secret = Secrets.random().current
    assert keyed_hash(secret, other.body) != other.body_hash, "nobody else can make it"
    assert not verify(dataclasses.replace(other, body=masked.body))
    assert not verify(dataclasses.replace(other, body_hash=masked.body_hash))


async def test_the_hash_is_the_one_of_the_egress_record() -> None:
    secrets = Secrets.random()
    made = Masker(
        MaskingSettings(layers=[], without_names="mask"), CLOCK, start_child=Children().start, secrets=secrets
    )
    await made.start()
    other = made.addressed(await mask(made), "second")
    key = derive_key(secrets.current, "egress record")
    assert other.body_hash == hmac.digest(key, other.body, hashlib.sha256).hex()
    await made.close()


@pytest.mark.parametrize(
    "change",
    [
        {"body": b'{"model":"first","messages":[{"role":"user","content":"not looked at"}]}'},
        {"request_id": "r2"},
        {"stream": False},
        {"entities": {}},
        {"detector_version": "x"},
        {"body_hash": "00"},
        {"seal": bytes(32)},
    ],
)
async def test_a_broken_seal_is_not_mended(masker: Masker, change: dict[str, Any]) -> None:
    broken = dataclasses.replace(await mask(masker), **change)
    with pytest.raises(ValueError, match="seal") as refused:
        masker.addressed(broken, "second")
    assert "secret" not in str(refused.value) and "looked" not in str(refused.value)
