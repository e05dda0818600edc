"""Pages of messages: joined they contain every matching message once, whatever a page has read."""

from __future__ import annotations

import random

import pytest

from broker_core.names import QueueName, Topic
from broker_core.remoting.message import StoredMessage
from proxy.operator.message_pages import (
    Position,
    QueueScan,
    Unread,
    matches,
    merged,
    newest,
    parse_positions,
    positions_text,
    short,
)
from testkit.messages import message

TOPIC = Topic("orders")
QUEUES = [QueueName(TOPIC, "broker-a", number) for number in range(3)]


def scanned(
    log: list[StoredMessage],
    queue: QueueName,
    begin: int,
    *,
    read: int,
    wanted: str = "",
    first: int = 0,
) -> QueueScan:
    """Return a scan of *queue* that has read at most *read* messages of its *log* from *begin*;
    *first*: the first offset that is stored.
    """
    scan = QueueScan(queue, begin, len(log), first=first)
    for each in log[begin : begin + read]:
        scan.saw(each, matches=matches(each, wanted))
        scan.came_to(each.queue_offset + 1)
    return scan


@pytest.mark.parametrize("seed", range(60))
def test_pages_join_without_gap_or_repetition(seed: int) -> None:
    """With any amount read for a page, and with a broker whose clock is set back."""
    chance = random.Random(seed)
    logs = {
        queue: [
            message(offset, body=chance.choice([b"red", b"blue"]), store_ms=chance.randrange(50))
            for offset in range(chance.randrange(20))
        ]
        for queue in QUEUES
    }
    positions = dict.fromkeys(QUEUES, 0)
    seen: list[tuple[QueueName, int]] = []
    for _ in range(200):
        scans = [
            scanned(logs[queue], queue, begin, read=chance.randrange(1, 8), wanted="red")
            for queue, begin in positions.items()
        ]
        taken, positions = merged(scans, limit=chance.randrange(1, 6))
        seen += [(queue, each.queue_offset) for queue, each in taken]
        positions = parse_positions(TOPIC, positions_text(positions), QUEUES)
        if all(positions[queue] >= len(log) for queue, log in logs.items()):
            break
    expected = [
        (queue, each.queue_offset)
        for queue, log in logs.items()
        for each in log
        if each.body == b"red"
    ]
    assert sorted(seen) == sorted(expected)
    for queue in QUEUES:
        offsets = [offset for each, offset in seen if each == queue]
        assert offsets == sorted(offsets)


def test_a_page_is_in_the_order_of_store_times_over_all_queues() -> None:
    logs = {QUEUES[0]: [1, 4, 9], QUEUES[1]: [2, 3, 8]}
    scans = [
        scanned([message(n, store_ms=ms) for n, ms in enumerate(times)], queue, 0, read=9)
        for queue, times in logs.items()
    ]
    taken, positions = merged(scans, limit=4)
    assert [each.store_ms for _, each in taken] == [1, 2, 3, 4]
    assert positions == {QUEUES[0]: 2, QUEUES[1]: 2}


def test_messages_newer_than_an_unread_queue_wait_for_the_next_page() -> None:
    early = scanned([message(0, store_ms=1), message(1, store_ms=2)], QUEUES[0], 0, read=1)
    late = scanned([message(0, store_ms=5)], QUEUES[1], 0, read=1)
    taken, positions = merged([early, late], limit=10)
    assert [each.store_ms for _, each in taken] == [1]
    assert positions == {QUEUES[0]: 1, QUEUES[1]: 0}


@pytest.mark.parametrize("seed", range(60))
def test_the_newest_messages_are_those_of_all_queues(seed: int) -> None:
    """However many of them one queue has, and wherever retention has come to."""
    chance = random.Random(seed)
    logs, scans, limit = {}, [], chance.randrange(1, 30)
    for queue in QUEUES:
        newest_ms, count = chance.choice([20, 200, 200]), chance.randrange(60)
        times = sorted(chance.randrange(newest_ms) for _ in range(count))
        logs[queue] = [message(offset, store_ms=ms) for offset, ms in enumerate(times)]
        first = chance.randrange(count + 1)
        begin = max(first, count - limit // len(QUEUES) - 1)
        scans.append(scanned(logs[queue], queue, begin, read=count, first=first))
    while left := short(scans, limit):
        for scan in left:
            part = scan.before()
            assert scan.first <= part.begin < part.end == scan.begin
            scan.join(scanned(logs[scan.queue][: part.end], scan.queue, part.begin, read=99))
    stored = sorted(each.store_ms for scan in scans for each in logs[scan.queue][scan.first :])
    assert [each.store_ms for _, each in newest(scans, limit)] == stored[-limit:]


def test_messages_before_a_part_that_was_not_read_are_left_out() -> None:
    """They would look like the neighbours of newer ones, with a gap between."""
    late = scanned([message(n, store_ms=20 + n) for n in range(9)], QUEUES[0], 6, read=9)
    early = scanned([message(n, store_ms=n) for n in range(3)], QUEUES[1], 0, read=9)
    assert [each.store_ms for _, each in newest([early, late], 5)] == [26, 27, 28]


def test_positions_in_queues_of_silent_brokers_are_kept() -> None:
    away = QueueName(TOPIC, "broker-z", 0)
    given: dict[QueueName, Position] = {
        QUEUES[0]: Unread(),
        QUEUES[1]: Unread(1_767_225_600_000),
        away: 17,
    }
    text = positions_text(given)
    assert text == "broker-a_0@end,broker-a_1@1767225600000ms,broker-z_0@17"
    assert parse_positions(TOPIC, text, QUEUES) == given


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "invalid position ''"),
        ("broker-a_0", "invalid position 'broker-a_0'"),
        ("broker-a_0@-1", "invalid position"),
        ("broker-a_9@1", "has no queue 'broker-a_9'"),
        ("x@1", "is not a queue"),
        ("broker-a_0@1,broker-a_0@2", "two positions"),
        ("broker-a_0@" + "9" * 30, "invalid position"),
        ("broker-a_0@ms", "invalid position"),
        ("broker-a_0@ends", "invalid position"),
    ],
)
def test_invalid_positions_are_one_sentence(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_positions(TOPIC, text, QUEUES)


def test_a_text_is_found_in_bodies_and_properties() -> None:
    each = message(0, body="größer".encode(), key="customer-17", color="red")
    assert all(matches(each, text) for text in ("", "größ", "customer-1", "red", "color"))
    assert not matches(each, "blue")
