from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.core.keys.ids import Epoch
from proxy.core.ownership import recording
from proxy.core.ownership.recording import Recording
from proxy.core.pipeline.queue_pipeline import QueuePipeline
from proxy.core.records.record import Delta, Snapshot, SnapshotPart
from proxy.core.records.replay import LastOwner
from testkit.messages import keyed
from testkit.pipelines import KEYS, lease, pipeline, rules
from tests.unit.core.records.ownership_records import own, write

HOUR_NS = 3600 * 1_000_000_000


def ack_one(queue: QueuePipeline) -> None:
    (each,) = lease(queue, 1)
    queue.settle(acked=[each.lease_id], now_ns=0)


def test_the_first_owner_begins_with_a_snapshot_and_continues_with_changes() -> None:
    queue = pipeline(messages=[keyed(0, "a"), keyed(1, "b"), keyed(2, "c")])
    records = Recording(queue, None)
    first = Snapshot(Epoch(1), 0, 3, (0, 1, 2), keys=KEYS)
    assert write(records, 7) == [SnapshotPart(0, 1, first, serial=1)]
    assert write(records, 8) == [], "nothing changed"
    ack_one(queue)
    assert write(records, 8) == [Delta(Epoch(1), 7, 1, 3, left=(0,), after=7)]
    assert write(records, 9) == []


def test_an_owner_goes_on_from_the_snapshot_that_it_resumed() -> None:
    before = Snapshot(Epoch(1), 1, 4, (1, 3), keys=KEYS)
    queue = pipeline(epoch=5, resume=before, messages=[keyed(1, "a")])
    records = Recording(
        queue, LastOwner(Epoch(1), own(), before, clean=False, snapshot_at=2, last_at=4)
    )
    assert write(records, 6) == [], "it says no more than its predecessor"
    ack_one(queue)
    assert write(records, 6) == [Delta(Epoch(5), 2, 3, 4, left=(1,), after=4)]


def test_a_lease_of_an_earlier_owner_is_recorded_until_it_has_ended() -> None:
    """N7: otherwise each later owner would wait for it again."""
    before = Snapshot(Epoch(1), 1, 2, (1,), leases={1: 600_000}, keys=KEYS)
    queue = pipeline(epoch=5, resume=before, messages=[keyed(1, "a")])
    records = Recording(
        queue, LastOwner(Epoch(1), own(), before, clean=True, snapshot_at=2, last_at=4)
    )
    assert write(records, 6) == [], "the client may hold it"
    assert not records.has_news(1)
    queue.on_time(now_ns=600_000 * 1_000_000)
    assert records.has_news(1)
    after = Snapshot(Epoch(5), 1, 2, (1,), keys=KEYS)
    assert write(records, 6) == [SnapshotPart(0, 1, after, serial=1)]
    assert not records.has_news(1)


def test_after_a_record_that_may_be_lost_everything_is_said_again() -> None:
    queue = pipeline(messages=[keyed(0, "a"), keyed(1, "b")])
    records = Recording(queue, None)
    write(records, 0)
    ack_one(queue)
    assert isinstance(records.due(1)[0], Delta)
    records.failed()
    again = Snapshot(Epoch(1), 1, 2, (1,), keys=KEYS)
    assert records.due(1) == [SnapshotPart(0, 1, again, serial=2)]


def test_what_may_be_committed_is_recorded_before() -> None:
    queue = pipeline(messages=[keyed(0, "a"), keyed(1, "b")])
    records = Recording(queue, None)
    write(records, 0)
    ack_one(queue)
    assert (queue.committable, queue.recorded) == (1, 0)
    records.due(1)
    records.failed()
    assert queue.recorded == 0, "the record may be lost"
    write(records, 1)
    assert queue.recorded == 1
    following = pipeline(epoch=5, resume=queue.snapshot(), messages=[keyed(1, "b")])
    assert following.recorded == 1
    ack_one(queue)
    queue.records_refused()
    assert queue.recorded == 2


def test_the_base_of_the_records_is_renewed_even_if_an_earlier_owner_wrote_it() -> None:
    before = Snapshot(Epoch(1), 1, 4, (1, 3), keys=KEYS)
    queue = pipeline(epoch=5, resume=before, messages=[keyed(1, "a")])
    records = Recording(
        queue, LastOwner(Epoch(1), own(), before, clean=False, snapshot_at=2, last_at=4)
    )
    assert records.snapshot_at == 2
    assert write(records, 6) == []
    records.renew()
    assert records.has_news(1)
    assert records.snapshot_at is None
    (part,) = write(records, 6)
    assert isinstance(part, SnapshotPart)
    assert part.piece.unfinished == (1, 3)
    assert records.snapshot_at == 6


def waiting(*, until_ns: int) -> tuple[QueuePipeline, Recording]:
    queue = pipeline(hold_until_ns=until_ns)
    recording = Recording(queue, None, replace(own(), hold_ms=until_ns // 1_000_000))
    write(recording, 0)
    return queue, recording


def test_the_end_of_the_wait_of_a_period_is_recorded_once() -> None:
    _queue, recording = waiting(until_ns=9_000_000)
    assert not recording.has_news(8_000_000)
    assert recording.has_news(9_000_000)
    (record,) = recording.due(9_000_000)
    assert isinstance(record, Delta)
    assert record.hold_over
    recording.written([record], at=5)
    assert not recording.has_news(9_000_001)
    (part,) = recording.due(9_000_001, whole=True)
    assert isinstance(part, SnapshotPart)
    assert part.own is not None
    assert part.own.hold_ms == 0


def test_an_end_of_the_wait_that_may_be_lost_is_recorded_again() -> None:
    _queue, recording = waiting(until_ns=9_000_000)
    recording.due(9_000_000)
    recording.failed()
    (part,) = recording.due(9_000_000)
    assert isinstance(part, SnapshotPart)
    assert part.own is not None
    assert part.own.hold_ms == 0


def test_a_snapshot_is_written_in_any_case_if_it_is_asked_for() -> None:
    queue = pipeline()
    records = Recording(queue, None)
    write(records, 0)
    assert isinstance(records.due(1, whole=True)[0], SnapshotPart)


def kinds(count: int, *, ns_each: int = 1, messages: int = 1) -> list[str]:
    """Return the records of *count* rounds with *messages* messages each, which all finish."""
    queue = pipeline(rules(max_jobs=count * messages + 1))
    records = Recording(queue, None)
    found = []
    for number in range(count):
        start = number * messages
        some = [keyed(n, f"k{n}") for n in range(start, start + messages)]
        queue.on_messages(some, next_offset=start + messages)
        for each in lease(queue, messages):
            if number % 2:  # otherwise every other round would only record the position
                queue.settle(acked=[each.lease_id], now_ns=0)
        due = write(records, number, now_ns=1 + number * ns_each)
        found.append(type(due[0]).__name__)
    return found


def test_a_new_owner_never_has_too_many_records_to_read() -> None:
    found = kinds(recording.MAX_DELTAS + 3)
    last = found.index("SnapshotPart", 1)
    assert last == recording.MAX_DELTAS + 1
    assert set(found[1:last]) == {"Delta"}


def test_a_snapshot_is_written_once_the_deltas_are_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MIN_OFFSETS", 400)
    found = kinds(12, messages=100)
    assert "SnapshotPart" in found[3:]
    assert found[1:4] == ["Delta"] * 3


def test_a_snapshot_is_never_older_than_an_hour() -> None:
    found = kinds(4, ns_each=HOUR_NS // 2)
    assert found == ["SnapshotPart", "Delta", "SnapshotPart", "Delta"]


def test_a_queue_in_which_nothing_happens_is_written_down_each_hour() -> None:
    """So its newest record shows that it has an owner, and retention does not delete it."""
    queue = pipeline(messages=[keyed(0, "a")])
    records = Recording(queue, None)
    write(records, 0, now_ns=1)
    assert write(records, 1, now_ns=HOUR_NS - 1) == []
    for hour in (1, 2):
        (again,) = write(records, hour, now_ns=hour * HOUR_NS + 1)
        same = Snapshot(Epoch(1), 0, 1, (0,), keys=KEYS)
        assert again == SnapshotPart(0, 1, same, serial=hour + 1)
        assert write(records, 9, now_ns=hour * HOUR_NS + 2) == []
