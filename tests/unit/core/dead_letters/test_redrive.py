"""The redrive of dead letters, step by step: rate, skips, ends, and deletions by retention."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker_core.names import QueueName, Topic
from broker_core.remoting.message import StoredMessage
from proxy.core.dead_letters.redrive import (
    Commit,
    End,
    Locate,
    Lock,
    Read,
    Redrive,
    RedriveState,
    Send,
    Wait,
    parse_skips,
)
from testkit.messages import message

SECOND = 1_000_000_000
QUEUE = QueueName(Topic("%DLQ%billing"), "broker-a", 0)


def letters(*offsets: int) -> list[StoredMessage]:
    return [message(each, store_ms=each) for each in offsets]


def begun(*, committed: int = 0, low: int = 0, end: int = 9, **options: object) -> Redrive:
    """Return a redrive that has had the lock since 0 s, and its position."""
    redrive = Redrive([QUEUE], renewal_ns=2 * SECOND, trust_ns=5 * SECOND, **options)  # type: ignore[arg-type]
    assert redrive.step(0) == Lock()
    redrive.granted(asked_ns=0)
    assert redrive.step(1) == Locate(QUEUE)
    redrive.located(QUEUE, committed=committed, low=low, end=end)
    return redrive


def read(
    redrive: Redrive,
    found: Sequence[StoredMessage],
    *,
    next_offset: int,
    end: int,
    now_ns: int = 1,
) -> None:
    step = redrive.step(now_ns)
    assert isinstance(step, Read)
    redrive.found(step, found, next_offset=next_offset, end=end, now_ns=now_ns)


def send(redrive: Redrive, now_ns: int, *, offset: int, doubtful: bool = False) -> None:
    step = redrive.step(now_ns)
    assert isinstance(step, Send)
    assert (step.stored.queue_offset, step.doubtful) == (offset, doubtful)
    redrive.sent(step, now_ns=now_ns)
    assert redrive.step(now_ns) == Commit(QUEUE, offset + 1)
    redrive.committed()


def test_a_rate_holds_between_two_messages_and_the_lock_is_renewed_meanwhile() -> None:
    redrive = begun(end=2, rate=0.25)
    read(redrive, letters(0, 1), next_offset=2, end=2)
    send(redrive, 1, offset=0, doubtful=True)
    assert redrive.step(2) == Wait(2 * SECOND - 2)
    assert redrive.step(2 * SECOND) == Lock()
    redrive.granted(asked_ns=2 * SECOND)
    assert redrive.step(3 * SECOND) == Wait(SECOND)
    assert redrive.step(4 * SECOND) == Lock()
    redrive.granted(asked_ns=4 * SECOND)
    send(redrive, 4 * SECOND + 2, offset=1)
    assert (redrive.step(4 * SECOND + 3), redrive.state) == (End(), RedriveState.DONE)
    assert (redrive.sent_back, redrive.left) == (2, 0)


def test_a_dead_letter_that_cannot_go_back_ends_it_and_may_be_passed_over() -> None:
    redrive = begun()
    read(redrive, letters(0, 1), next_offset=2, end=2)
    step = redrive.step(1)
    assert isinstance(step, Send)
    redrive.not_sendable(step, "no topic")
    assert (redrive.step(1), redrive.state) == (End(), RedriveState.FAILED)
    assert redrive.reason.endswith("skip it with --skip broker-a_0@0")

    redrive = begun(skip=parse_skips(["broker-a_0@0"], [QUEUE]))
    read(redrive, letters(0, 1), next_offset=2, end=2)
    assert redrive.left == 1, "the other one"
    assert redrive.step(1) == Commit(QUEUE, 1, skipped=True)
    redrive.committed()
    send(redrive, 1, offset=1)
    assert (redrive.skipped, redrive.sent_back) == (1, 1)


@pytest.mark.parametrize("text", ["", "17", "broker-a_0", "broker-a_0@", "broker-b_0@1", "@1"])
def test_a_dead_letter_to_skip_must_be_named_in_full(text: str) -> None:
    with pytest.raises(ValueError, match="is not a dead letter"):
        parse_skips([text], [QUEUE])


def test_a_stop_ends_it_behind_the_message_on_its_way() -> None:
    redrive = begun()
    read(redrive, letters(0, 1), next_offset=2, end=2)
    step = redrive.step(1)
    assert isinstance(step, Send)
    redrive.stop()
    redrive.sent(step, now_ns=1)
    assert redrive.step(1) == Commit(QUEUE, 1)
    redrive.committed()
    assert (redrive.step(1), redrive.state) == (End(), RedriveState.STOPPED)


def test_a_stop_does_not_wait_for_a_broker_that_is_away() -> None:
    redrive = begun()
    read(redrive, letters(0), next_offset=1, end=1)
    step = redrive.step(1)
    assert isinstance(step, Send)
    redrive.sent(step, now_ns=1)
    redrive.trouble("away", now_ns=1)  # the sent message is not committed
    assert isinstance(redrive.step(2), Wait)
    redrive.stop()
    assert redrive.step(3) == End()


def test_dead_letters_deleted_by_retention_are_reported_and_skipped() -> None:
    redrive = begun(committed=1, low=4)
    assert redrive.note == f"retention deleted 3 dead letters of {QUEUE} before their redrive"
    read(redrive, [], next_offset=6, end=9)
    assert redrive.note == f"retention deleted 2 dead letters of {QUEUE} before their redrive"
    assert redrive.step(1) == Read(QUEUE, 6)
    assert redrive.left == 3


def test_a_queue_that_ends_below_its_progress_continues_at_its_end() -> None:
    redrive = begun(committed=7, end=3)
    assert redrive.note == f"{QUEUE} ends at 3, below its progress 7: it continues there"
    assert redrive.step(1) == Commit(QUEUE, 3)
    redrive.committed()
    assert redrive.step(1) == End()


def test_a_broker_that_shows_nothing_is_asked_again_later() -> None:
    redrive = begun()
    read(redrive, [], next_offset=0, end=9)
    assert isinstance(redrive.step(2), Wait)
    assert redrive.reason == f"{QUEUE} returns nothing at its offset 0"


def test_progress_of_another_redrive_is_neither_repeated_nor_reverted() -> None:
    """Its lock lapsed with a commit on its way."""
    redrive = begun()
    read(redrive, letters(0, 1), next_offset=2, end=2)
    step = redrive.step(1)
    assert isinstance(step, Send)
    redrive.sent(step, now_ns=1)
    redrive.trouble("no answer", now_ns=1)
    later = 60 * SECOND
    assert redrive.step(later) == Lock()
    redrive.granted(asked_ns=later)
    assert redrive.step(later) == Locate(QUEUE)
    redrive.located(QUEUE, committed=2, low=0, end=2)
    assert (redrive.step(later), redrive.state) == (End(), RedriveState.DONE)


def test_a_commit_that_failed_is_tried_again_and_its_message_is_not() -> None:
    redrive = begun(end=2)
    read(redrive, letters(0, 1), next_offset=2, end=2)
    step = redrive.step(1)
    assert isinstance(step, Send)
    redrive.sent(step, now_ns=1)
    redrive.trouble("no answer", now_ns=1)
    now_ns = SECOND
    assert redrive.step(now_ns) == Lock()
    redrive.granted(asked_ns=now_ns)
    assert redrive.step(now_ns) == Locate(QUEUE)
    redrive.located(QUEUE, committed=0, low=0, end=5)  # it never arrived, and more died
    assert redrive.step(now_ns) == Commit(QUEUE, 1)
    redrive.committed()
    assert redrive.step(now_ns) == Read(QUEUE, 1)
    read(redrive, letters(1, 2), next_offset=3, end=5, now_ns=now_ns)
    send(redrive, now_ns, offset=1, doubtful=True)
    assert (redrive.step(now_ns), redrive.state) == (End(), RedriveState.DONE)


def test_after_a_lapse_of_trust_it_asks_for_the_progress_of_others() -> None:
    redrive = begun(end=3)
    read(redrive, letters(0, 1, 2), next_offset=3, end=3)
    send(redrive, 1, offset=0, doubtful=True)
    later = 60 * SECOND  # the process was paused
    assert redrive.step(later) == Lock()
    redrive.granted(asked_ns=later)
    assert redrive.step(later) == Locate(QUEUE)
    redrive.located(QUEUE, committed=2, low=0, end=3)
    assert redrive.step(later) == Read(QUEUE, 2)
