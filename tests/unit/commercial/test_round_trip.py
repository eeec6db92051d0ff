"""Masked here, recorded there, restored here."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from tests.support.recorder import Mode
from tests.unit.commercial.harness import CLOCK, side, text_of
from tests.unit.masking.fakes import Children
from weighbridge.config.deadline import Deadline
from weighbridge.config.settings import MaskingSettings
from weighbridge.masking.masker import Masker
from weighbridge.masking.request import MaskedRequest
from weighbridge.masking.restore import StreamRestorer, restore_completion

SAID = "제 이름은 XXkimXX, 번호는 010-1234-5678, 메일은 a@corp 입니다. 😀 XXleeXX"
PLANTED = ("kim", "lee", "1234", "5678", "corp")


@pytest.fixture
async def masker() -> AsyncIterator[Masker]:
    made = Masker(MaskingSettings(layers=[], without_names="mask"), CLOCK, start_child=Children().start)
    await made.start()
    yield made
    await made.close()


async def masked_by(masker: Masker, *, stream: bool, n: int = 1) -> MaskedRequest:
    return await masker.mask(
        {
            "model": "auto",
            "messages": [{"role": "user", "content": SAID}],
            "stream": stream,
            "n": n,
            "user": "kim",
        },
        request_id="r1",
        upstream_model="upstream",
        conversation="tenant/one",
        deadline=Deadline.after(CLOCK, 10),
    )


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1000])
async def test_a_stream(masker: Masker, piece: int) -> None:
    async with side(Mode(piece=piece)) as here:
        request = await masked_by(masker, stream=True, n=2)
        restorer = StreamRestorer(request.vault)
        events: list[bytes] = []
        async for event in here.stream(request):
            events.extend(restorer.feed(event))
        events.extend(restorer.finish())
        answers = [json.loads(event) for event in events]
        for index in (0, 1):
            assert text_of(answers, index) == f"You said: {SAID} – 네, 알겠습니다. 😀"
        assert answers[-1]["usage"] is not None
        seen = here.recorder.everything.decode()
        assert not [value for value in PLANTED if value in seen]
        assert here.journal.rows[0].entities == {"EMAIL": 1, "PHONE": 3}
        assert here.journal.rows[0].body_hash == request.body_hash


async def test_a_document(masker: Masker) -> None:
    async with side() as here:
        request = await masked_by(masker, stream=False)
        answer = json.dumps(await here.complete(request)).encode()
        restored = json.loads(restore_completion(request.vault, answer))
        assert restored["choices"][0]["message"]["content"] == f"You said: {SAID} – 네, 알겠습니다. 😀"
        assert not [value for value in PLANTED if value in here.recorder.everything.decode()]
