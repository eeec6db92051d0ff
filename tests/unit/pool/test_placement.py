"""Which worker gets a request: the prompt's own one, unless that has too much to do."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from weighbridge.pool.placement import SLACK, choose


@dataclass(frozen=True)
class Worker:
    name: str
    slots: int = 8
    in_use: int = 0
    tokens: int = 0


FOUR = [Worker(name) for name in "0123"]
PROMPTS = [f"prompt {n}".encode() for n in range(400)]


def owners(workers: list[Worker]) -> dict[bytes, str]:
    return {prompt: choose(prompt, workers, workers).name for prompt in PROMPTS}


def test_prompts_are_spread_evenly_and_keep_their_worker() -> None:
    first = owners(FOUR)
    assert first == owners(FOUR) == owners(FOUR[::-1])
    assert min(Counter(first.values()).values()) > 60


def test_a_worker_that_comes_or_goes_moves_its_own_prompts_alone() -> None:
    before, after = owners(FOUR), owners(FOUR[:3])
    assert all(after[prompt] == name for prompt, name in before.items() if name != "3")
    assert len({after[prompt] for prompt, name in before.items() if name == "3"}) == 3


def test_a_prompt_goes_elsewhere_when_its_worker_has_too_much_more_to_do() -> None:
    prompt = PROMPTS[0]
    own = choose(prompt, FOUR, FOUR).name

    def chosen(more: int, slots: int = 8) -> str:
        workers = [Worker(w.name, slots, 1 + (more if w.name == own else 0), 10) for w in FOUR]
        return choose(prompt, workers, workers).name

    assert chosen(SLACK - 1) == own
    assert chosen(SLACK) != own
    # Of many slots a quarter, of few no less than that.
    assert chosen(SLACK - 1, slots=4) == own
    assert chosen(15, slots=64) == own
    assert chosen(16, slots=64) != own


def test_a_worker_that_is_full_does_not_give_its_prompts_away_for_good() -> None:
    prompt = PROMPTS[0]
    own = choose(prompt, FOUR, FOUR)
    others = [worker for worker in FOUR if worker is not own]
    # They do not become anybody else's: the least busy one takes each.
    for idle in others:
        free = [replace(worker, tokens=0 if worker is idle else 5) for worker in others]
        assert choose(prompt, [own, *free], free).name == idle.name
    assert choose(prompt, FOUR, FOUR) is own


def test_without_affinity_the_least_busy_one_is_taken() -> None:
    workers = [
        Worker("a", tokens=30, in_use=1),
        Worker("b", tokens=20, in_use=5),
        Worker("c", tokens=20, in_use=4),
    ]
    assert choose(b"", workers, workers).name == "c"
    assert choose(b"", workers, workers[:2]).name == "b"
    assert choose(b"", FOUR, FOUR).name == "0"


def test_one_worker_takes_everything() -> None:
    assert choose(PROMPTS[0], FOUR[:1], FOUR[:1]) is FOUR[0]


WORKERS = st.lists(
    st.builds(Worker, name=st.sampled_from("abcdefg"), slots=st.integers(1, 40), tokens=st.integers(0, 50)),
    min_size=1,
    max_size=6,
    unique_by=lambda worker: worker.name,
).flatmap(
    lambda workers: st.tuples(
        *(
            st.integers(0, worker.slots).map(lambda n, worker=worker: replace(worker, in_use=n))
            for worker in workers
        )
    )
)


@given(WORKERS, st.binary(max_size=9), st.data())
def test_it_takes_one_that_can_and_never_piles_up(
    workers: tuple[Worker, ...], affinity: bytes, data: st.DataObject
) -> None:
    free = data.draw(st.lists(st.sampled_from(workers), min_size=1, unique=True))
    chosen = choose(affinity, workers, free)
    assert chosen in free
    least = min(free, key=lambda worker: (worker.tokens, worker.in_use, worker.name))
    bound = min(worker.in_use for worker in workers) + max(SLACK, chosen.slots // 4)
    assert chosen is least or chosen.in_use < bound
