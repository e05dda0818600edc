"""The audit of refused requests."""

from __future__ import annotations

from proxy.core.limits.refusals import EVERY_NS, MOST_PER_MINUTE, Refusal, RefusalBook


def refusal(client: str = "10.0.0.1", principal: str = "", why: str = "no token") -> Refusal:
    return Refusal(client, principal, "thrift", "pull", why, 0)


def test_a_source_is_recorded_once_a_minute_with_the_number_left_out() -> None:
    book = RefusalBook()
    assert book.note(refusal(), 0) is not None
    assert [book.note(refusal(), number) for number in range(1, 100)] == [None] * 99
    again = book.note(refusal(), EVERY_NS)
    assert again is not None
    assert again.left_out == 99
    assert (book.count, len(list(book))) == (101, 2)


def test_principals_of_one_address_are_sources_of_their_own() -> None:
    book = RefusalBook()
    assert book.note(refusal(principal="ann"), 0) is not None
    assert book.note(refusal(principal="bob"), 0) is not None


def test_any_number_of_sources_leaves_few_records_and_little_memory() -> None:
    """As from an IPv6 network, in which each request has another address."""
    book = RefusalBook()
    recorded = sum(book.note(refusal(f"2001:db8::{n:x}"), 0) is not None for n in range(20_000))
    assert recorded == MOST_PER_MINUTE
    assert book.count == 20_000


def test_long_texts_are_cut() -> None:
    record = RefusalBook().note(refusal(why="x" * 10_000), 0)
    assert record is not None
    assert len(record.why) == 256
