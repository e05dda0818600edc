"""Figures of queues without an owner follow from offsets and the last records; else unknown."""

from __future__ import annotations

from array import array
from typing import Any

from proxy.core.group.known_queue import (
    KnownQueue,
    Offsets,
    QueueOwner,
    Recorded,
    figures_of,
    known_here,
    oldest_of,
    parked_copies,
    unfinished_of,
)
from proxy.core.keys.ids import Epoch
from proxy.core.records.parked_key import ParkedKey
from proxy.core.records.paused_key import EVERYTHING, PausedKey
from proxy.core.records.record import Own, Snapshot
from proxy.core.records.replay import LastOwner
from testkit.messages import message
from testkit.pipelines import pipeline, queue

PAUSE = PausedKey(1, "ann", "the bank is closed")
#: Read to 20; unfinished are 11, 12, 14, and a chain of 15 and 16.
SNAPSHOT = Snapshot(
    Epoch(3),
    10,
    20,
    unfinished=(11, 12, 14),
    attempts={11: 4, 12: 1},
    spilled={b"k": array("q", [15, 16])},
    parked={b"p": ParkedKey(5, 3)},
    paused={b"z": PAUSE, EVERYTHING: PAUSE},
)


def last(snapshot: Snapshot | None = SNAPSHOT) -> LastOwner:
    own = Own("proxy-1", trust_ms=1, longest_lease_ms=1, broker_start_ms=1, period=1)
    return LastOwner(Epoch(3), own, snapshot, clean=True)


def known(number: int = 0, **figures: Any) -> KnownQueue:
    zeros = dict.fromkeys(
        ("lag", "unfinished", "blocked", "parked", "parked_keys", "paused_keys"), 0
    )
    given = {"owned": QueueOwner.FREE, "at_ms": 7, **zeros, **figures}
    return KnownQueue(queue=queue(number), **given)


def test_lag_counts_from_the_committed_offset_or_from_what_retention_left() -> None:
    assert Offsets(0, 30, 10).lag() == 20
    assert Offsets(12, 30, 10).lag() == 18
    assert Offsets(12, 30).lag() == 18
    assert Offsets(12, 30).lag(from_end=True) == 0
    assert Offsets(0, 5, 9).lag() == 0


def test_unfinished_messages_are_those_of_the_records() -> None:
    assert unfinished_of(SNAPSHOT, Offsets(0, 30, 10)) == 5
    assert unfinished_of(SNAPSHOT, Offsets(13, 30, 10)) == 3
    assert unfinished_of(SNAPSHOT, Offsets(0, 30, 13)) == 3
    assert unfinished_of(SNAPSHOT, Offsets(0, 12, 10)) == 1, "the queue lost its tail"


def test_the_oldest_message_that_waits() -> None:
    assert oldest_of(SNAPSHOT, Offsets(0, 30, 10)) == 11
    assert oldest_of(SNAPSHOT, Offsets(0, 30, 15)) == 15
    assert oldest_of(SNAPSHOT, Offsets(0, 30, 17)) == 20
    assert oldest_of(Snapshot(Epoch(1), 20, 20), Offsets(0, 20, 20)) is None
    assert oldest_of(None, Offsets(4, 30)) == 4


def test_figures_of_records() -> None:
    offsets = Offsets(0, 30, 10)
    assert Recorded.of(last(), offsets, deleted=False) == Recorded(5, None, 1, 1, 4, PAUSE)
    one = Snapshot(Epoch(3), 10, 20, unfinished=(11,))
    assert Recorded.of(last(one), offsets, deleted=False).blocked == 0, "nothing is behind it"


def test_a_queue_that_never_had_an_owner_has_nothing_but_lag_and_deleted_records_tell_nothing() -> (
    None
):
    offsets = Offsets(0, 30)
    assert Recorded.of(None, offsets, deleted=False) == Recorded(0, 0, 0, 0, 0)
    unknown = Recorded(None, None, None, None, None)
    assert Recorded.of(None, offsets, deleted=True) == unknown
    assert Recorded.of(last(None), offsets, deleted=False) == unknown


def test_parked_copies_are_those_of_the_twins_records_and_those_not_read() -> None:
    assert parked_copies(last(), Offsets(0, 23, 10)) == 5 + 3
    assert parked_copies(None, Offsets(0, 23)) is None
    assert parked_copies(last(None), Offsets(0, 23)) is None


def test_an_owned_queue_knows_everything() -> None:
    owned = pipeline(messages=[message(number) for number in range(3)])
    here = known_here(owned, owned.statistics(), wall_ms=9)
    assert (here.owned, here.at_ms, here.lag, here.unfinished, here.parked) == (
        *(QueueOwner.HERE, 9, 3, 3, 0),
    )


def test_a_sum_with_an_unknown_part_is_unknown_and_other_proxies_queues_are_in_none() -> None:
    rows = [known(0, lag=3, parked=None), known(1, lag=4, at_ms=5, oldest_ms=2)]
    rows.append(KnownQueue(queue=queue(2), owned=QueueOwner.ELSEWHERE, lag=100))
    figures = figures_of(rows)
    assert (figures.queues, figures.unowned, figures.elsewhere, figures.unknown) == (2, 2, 1, 2)
    assert (figures.lag, figures.parked, figures.at_ms, figures.oldest_ms) == (7, None, 5, 2)


def test_no_queue_or_an_incomplete_list_has_no_figures() -> None:
    assert figures_of([]).lag is None
    assert figures_of([KnownQueue(queue=queue(), owned=QueueOwner.ELSEWHERE, lag=1)]).lag is None
    assert figures_of([known(lag=3)], complete=False).lag is None
    assert figures_of([known(lag=3)]).lag == 3
