"""Bodies of Apache RocketMQ's brokers, which do not verify them, are verified by the client."""

from __future__ import annotations

import pytest

from broker_core.client.pulling import decoded
from broker_core.client.results import PulledRecords, PullStatus
from broker_core.errors import RemoteProtocolError
from testkit.messages import message, record


def pulled(*records: bytes) -> PulledRecords:
    return PulledRecords(
        status=PullStatus.FOUND,
        records=b"".join(records),
        next_offset=7 + len(records),
        min_offset=0,
        max_offset=20,
    )


RECORDS = [record(message(offset, body=b"some body", key="k")) for offset in (7, 8, 9)]


def garbled(data: bytes) -> bytes:
    return data.replace(b"some body", b"some bodY")


def test_messages_before_a_damaged_body_are_returned_first() -> None:
    result = decoded(pulled(RECORDS[0], RECORDS[1], garbled(RECORDS[2])), 7)
    assert result.status is PullStatus.FOUND
    assert [each.queue_offset for each in result.messages] == [7, 8]
    assert (result.next_offset, result.damage) == (9, "")


def test_a_damaged_body_is_no_message_and_has_a_sentence() -> None:
    result = decoded(pulled(garbled(RECORDS[0]), RECORDS[1]), 7)
    assert (result.status, result.messages, result.next_offset) == (PullStatus.DAMAGED, [], 8)
    assert "message 7 of queue 0" in result.damage
    assert "does not match its checksum" in result.damage


def test_messages_left_out_before_a_damaged_body_are_intact() -> None:
    """The broker left out two of other tags: a pull behind them finds the damaged one."""
    result = decoded(pulled(garbled(RECORDS[0]), RECORDS[1]), 5)
    assert (result.status, result.messages, result.next_offset) == (PullStatus.NO_MATCH, [], 7)
    assert result.damage == ""


def test_records_that_cannot_be_told_apart_are_an_error() -> None:
    with pytest.raises(RemoteProtocolError):
        decoded(pulled(b"\0" * 40 + RECORDS[0]), 7)
