"""Bulk readers of a group: active readers, and the right to move offsets."""

from __future__ import annotations

from proxy.downstream.bulk.readers import ACK_HOLD_NS, SEEN_NS, BulkReaders


def test_readers_are_present_for_30_s_after_they_were_seen_last() -> None:
    readers = BulkReaders()
    assert readers.present("a", 0) == ["a"]
    assert readers.present("b", 10) == ["a", "b"]
    assert readers.present("a", 20) == ["b", "a"]
    assert readers.present("c", 10 + SEEN_NS) == ["b", "a", "c"]
    assert readers.present("c", 11 + SEEN_NS) == ["a", "c"]
    assert readers.present("c", 21 + SEEN_NS) == ["c"]
    assert SEEN_NS == 30 * 10**9


def test_readers_of_late_are_counted() -> None:
    readers = BulkReaders()
    assert readers.count(0) == 0
    readers.present("a", 0)
    readers.present("b", 10)
    assert readers.count(SEEN_NS) == 2
    assert readers.count(1 + SEEN_NS) == 1
    assert readers.count(11 + SEEN_NS) == 0


def test_only_the_reader_that_acked_may_ack_for_60_s_after_its_last_ack() -> None:
    readers = BulkReaders()
    assert readers.may_ack("a", 5)
    assert not readers.may_ack("b", 5 + ACK_HOLD_NS)
    assert readers.may_ack("a", 5 + ACK_HOLD_NS)
    assert not readers.may_ack("b", 6 + ACK_HOLD_NS)
    assert readers.may_ack("b", 6 + 2 * ACK_HOLD_NS)
    assert not readers.may_ack("a", 6 + 2 * ACK_HOLD_NS)
    assert ACK_HOLD_NS == 60 * 10**9


def test_a_refused_ack_does_not_prolong_the_hold() -> None:
    readers = BulkReaders()
    assert readers.may_ack("a", 0)
    assert not readers.may_ack("b", ACK_HOLD_NS)
    assert readers.may_ack("b", ACK_HOLD_NS + 1)


def test_a_reader_without_a_name_holds_like_any_other() -> None:
    readers = BulkReaders()
    assert readers.may_ack("", 0)
    assert not readers.may_ack("b", 1)
    assert readers.may_ack("", 2)
