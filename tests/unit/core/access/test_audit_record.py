"""Audit records can be read back, and records stored twice are shown once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.core.access.audit_record import (
    AuditRecord,
    AuditWish,
    Change,
    Merged,
    Phase,
    audit_text,
    decode,
    encode,
    shortened,
)

PAUSE = Change(
    "ann", "key pause", "billing", "it floods", "orders", "k", {"state": "ready"}, {"paused": True}
)


def record(number: int, change: Change = PAUSE, phase: Phase = Phase.BEGIN) -> AuditRecord:
    return AuditRecord(f"id-{number}", number, "proxy@1#1", change, phase)


def test_a_record_is_read_as_it_was_written() -> None:
    ended = AuditRecord("id", 5, "proxy@1#1", PAUSE, Phase.END, "the queue was lost")
    assert [decode(encode(each)) for each in (record(1), ended)] == [record(1), ended]


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"v":2}', encode(record(1))[:-9]])
def test_other_bytes_than_records_are_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="not an audit record"):
        decode(body)


@pytest.mark.parametrize("time", [b"-1", b"9223372036854775808", b"2" * 60, b"1e999", b"null"])
def test_a_time_out_of_range_is_refused(time: bytes) -> None:
    at_ms = str(record(1).at_ms).encode()
    body = encode(record(1)).replace(b'"at_ms":' + at_ms, b'"at_ms":' + time)
    with pytest.raises(ValueError, match="not an audit record"):
        decode(body)


def test_a_record_can_contain_any_text() -> None:
    assert audit_text("\ud800" + "x" * 5000) == "?" + "x" * 2047


def test_the_newest_of_several_queues_are_ordered_by_time() -> None:
    merged = Merged()
    merged.add([record(1), record(4)])
    merged.add([record(4), record(2), record(4, phase=Phase.END)])
    found = [(each.id, each.phase) for each in merged.newest(3)]
    assert found == [("id-2", "begin"), ("id-4", "begin"), ("id-4", "end")]


@pytest.mark.parametrize(
    ("wish", "taken"),
    [
        (AuditWish(), True),
        (AuditWish(group="billing", topic="orders", target="k"), True),
        (AuditWish(group="other"), False),
        (AuditWish(topic="other"), False),
        (AuditWish(target="other"), False),
    ],
)
def test_only_requested_records_are_shown(wish: AuditWish, taken: bool) -> None:
    assert wish.takes(record(1)) is taken


def test_a_shortened_record_names_its_omissions() -> None:
    queues = [{"queue": f"broker-a_{number}", "paused": True} for number in range(2000)]
    change = replace(PAUSE, reason="r" * 2048, target="t" * 300, before=None, after=queues)
    short = shortened(record(1, change))
    assert len(encode(short)) < 1500
    assert decode(encode(short)) == short
    assert (short.id, short.change.target) == (record(1).id, "t" * 300)
    assert short.change.reason == "r" * 400
    assert short.change.before is None
    assert short.change.after == "left out: 78891 bytes, more than the broker accepts"
