"""Request headers: what a caller may ask for, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weighbridge.config.errors import InvalidRequest
from weighbridge.gateway.auth import header_map
from weighbridge.gateway.wishes import Wishes, read_wishes

WAIT = b"x-weighbridge-max-queue-ms"
PRIORITY = b"x-weighbridge-priority"


def wishes(*headers: tuple[bytes, bytes]) -> Wishes:
    return read_wishes(header_map(headers))


def refused(*headers: tuple[bytes, bytes]) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        wishes(*headers)
    assert caught.value.status == 400
    assert caught.value.code == "invalid_header"
    return caught.value


def test_without_headers_there_is_nothing_to_wish_for() -> None:
    assert wishes((b"host", b"h")) == Wishes(max_queue_ms=None, batch=False)


@pytest.mark.parametrize(
    ("value", "wait"), [(b"0", 0), (b"1", 1), (b"600000", 600_000), (b" 250\t", 250), (b"007", 7)]
)
def test_a_wait(value: bytes, wait: int) -> None:
    assert wishes((WAIT, value)) == Wishes(max_queue_ms=wait, batch=False)


@pytest.mark.parametrize(("value", "batch"), [(b"batch", True), (b"interactive", False), (b" batch ", True)])
def test_a_priority(value: bytes, batch: bool) -> None:
    assert wishes((PRIORITY, value)) == Wishes(max_queue_ms=None, batch=batch)


def test_both() -> None:
    assert wishes((PRIORITY, b"batch"), (WAIT, b"5")) == Wishes(max_queue_ms=5, batch=True)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b" ",
        b"-1",
        b"+1",
        b"1.5",
        b"1e3",
        b"600001",
        b"0000001",
        b"1 2",
        b"0x10",
        b"1_0",
        b"hush",
        "١".encode(),
    ],
)
def test_a_wait_that_is_none(value: bytes) -> None:
    error = refused((WAIT, value))
    assert error.param == "x-weighbridge-max-queue-ms"
    assert error.message == (
        "The header 'x-weighbridge-max-queue-ms' must be a whole number of milliseconds from 0 to 600000."
    )


@pytest.mark.parametrize("value", [b"", b"high", b"Batch", b"0", b"batch;q=1", b"\xff"])
def test_a_priority_that_is_none(value: bytes) -> None:
    error = refused((PRIORITY, value))
    assert error.param == "x-weighbridge-priority"
    assert error.message == "The header 'x-weighbridge-priority' must be interactive or batch."


def test_given_twice_the_humblest_counts() -> None:
    assert wishes((WAIT, b"300"), (WAIT, b"20"), (WAIT, b"100")).max_queue_ms == 20
    assert wishes((WAIT, b"20,300")).max_queue_ms == 20
    for first, second in ((b"batch", b"interactive"), (b"interactive", b"batch")):
        assert wishes((PRIORITY, first), (PRIORITY, second)).batch is True


def test_given_twice_each_must_be_legal() -> None:
    assert refused((WAIT, b"5"), (WAIT, b"x")).param == "x-weighbridge-max-queue-ms"
    assert refused((WAIT, b"5,")).param == "x-weighbridge-max-queue-ms"
    assert refused((PRIORITY, b"batch"), (PRIORITY, b"x")).param == "x-weighbridge-priority"


CLASS = b"x-weighbridge-data-class"
CONVERSATION = b"x-weighbridge-conversation-id"


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"restricted", "restricted"),
        (b" Restricted\t", "restricted"),
        (b"a.b_c-1", "a.b_c-1"),
        (b"x" * 32, "x" * 32),
    ],
)
def test_a_data_class(value: bytes, found: str) -> None:
    assert wishes((CLASS, value)) == Wishes(data_class=found)


@pytest.mark.parametrize("value", [b"0190-abc", b"user:7/chat@42", b"aGk+/w==", b"c" * 200])
def test_a_conversation(value: bytes) -> None:
    assert wishes((CONVERSATION, value)) == Wishes(conversation=value.decode())


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (CLASS, b""),
        (CLASS, b"x" * 33),
        (CLASS, b"two words"),
        (CLASS, "기밀".encode()),
        (CLASS, b"public\x00"),
        (CONVERSATION, b""),
        (CONVERSATION, b"c" * 201),
        (CONVERSATION, b"a b"),
        (CONVERSATION, b"a\nb"),
        (CONVERSATION, "대화".encode()),
        (CONVERSATION, b"\xff"),
    ],
)
def test_a_class_or_conversation_that_is_none(header: bytes, value: bytes) -> None:
    error = refused((header, value))
    assert error.param == header.decode()
    assert error.message.isascii() and (not value.strip() or value.decode("latin-1") not in error.message)


@pytest.mark.parametrize("header", [CLASS, CONVERSATION])
def test_a_class_or_conversation_given_twice_must_be_the_same(header: bytes) -> None:
    same = wishes((header, b"one"), (header, b"one"))
    assert "one" in (same.data_class, same.conversation)
    assert refused((header, b"one"), (header, b"other")).param == header.decode()
    assert refused((header, b"one"), (header, b"")).param == header.decode()


@settings(deadline=None)
@given(st.binary(max_size=12), st.binary(max_size=12))
def test_any_value_is_a_wish_or_refused(wait: bytes, priority: bytes) -> None:
    try:
        found = wishes((WAIT, wait), (PRIORITY, priority))
    except InvalidRequest as error:
        assert error.message.isascii()
        assert error.param in ("x-weighbridge-max-queue-ms", "x-weighbridge-priority")
    else:
        assert found.max_queue_ms is not None
        assert 0 <= found.max_queue_ms <= 600_000


EXPLAIN = b"x-weighbridge-explain"


def test_an_explanation() -> None:
    assert wishes((EXPLAIN, b"true")) == Wishes(explain=True)
    assert wishes((EXPLAIN, b" false ")) == Wishes()
    assert wishes((EXPLAIN, b"true"), (EXPLAIN, b"false")) == Wishes()


@pytest.mark.parametrize("value", [b"", b"1", b"True", b"yes", b"true;q=1", b"\xff"])
def test_an_explanation_that_is_none(value: bytes) -> None:
    error = refused((EXPLAIN, value))
    assert error.param == "x-weighbridge-explain"
    assert error.message == "The header 'x-weighbridge-explain' must be true or false."
