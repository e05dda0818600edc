"""Locks, members and producers end as if all were looked at each time, although most looks are
skipped, and a connection's end concerns its own alone.
"""

from __future__ import annotations

import random

import pytest

from broker_core.broker.groups.groups import Groups
from broker_core.broker.groups.producers import Producers
from broker_core.broker.groups.queue_locks import QueueLocks
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.bodies import ConsumerData

EXPIRY = 100
G = Group("g")


def queue(number: int) -> QueueName:
    return QueueName(Topic("t"), "b", number)


@pytest.mark.parametrize("seed", range(10))
def test_locks_end_when_their_time_is_over(seed: int) -> None:
    chooser, locks, now = random.Random(seed), QueueLocks(EXPIRY), 0
    held: dict[int, int] = {}
    for _ in range(3_000):
        now += chooser.choice((0, 1, 5, 40))
        number = chooser.randrange(8)
        match chooser.choice("lock renew unlock expire expire".split()):
            case "lock":
                locks.lock(G, "c", [queue(number)], now_ns=now)
                held[number] = now
            case "renew" if number in held:
                locks.renew("c", [(G, queue(number))], now_ns=now)
                held[number] = now
            case "unlock":
                locks.unlock(G, "c", [queue(number)], now_ns=now, sequence=1)
                held.pop(number, None)
            case _:
                locks.expire(now)
                held = {each: at for each, at in held.items() if now - at <= EXPIRY}
                assert len(locks) == len(held)


def test_a_loaded_lock_ends_by_its_saved_age() -> None:
    before = QueueLocks(EXPIRY)
    before.lock(G, "c", [queue(0)], now_ns=0)
    locks = QueueLocks.from_table(before.to_table(), expiry_ns=EXPIRY, now_ns=1_000)
    for now, left in ((1_050, 1), (1_100, 1), (1_101, 0)):
        locks.expire(now)
        assert len(locks) == left


def test_ages_are_saved_until_the_last_loaded_lock_is_renewed() -> None:
    second = 1_000_000_000
    before = QueueLocks(60 * second)
    before.lock(G, "c", [queue(0), queue(1)], now_ns=0)
    locks = QueueLocks.from_table(before.to_table(), expiry_ns=60 * second, now_ns=0)
    assert locks.ages_to_save(2 * second)
    locks.renew("c", [(G, queue(0))], now_ns=3 * second)
    assert locks.ages_to_save(4 * second)
    locks.renew("c", [(G, queue(1))], now_ns=5 * second)
    assert not locks.ages_to_save(6 * second)


@pytest.mark.parametrize("seed", range(10))
def test_producers_end_when_their_time_is_over_whatever_the_time_of_others(seed: int) -> None:
    chooser, now = random.Random(seed), 0
    producers: Producers[str] = Producers()
    ends: dict[tuple[str, str], int] = {}
    for _ in range(3_000):
        now += chooser.choice((0, 1, 5, 40))
        client, group = chooser.choice("abc"), chooser.choice("xyz")
        match chooser.choice("heartbeat unregister excuse expire expire".split()):
            case "heartbeat":
                lasts = chooser.choice((10, 100, 1_000))
                producers.heartbeat(client, client, [Group(group)], now_ns=now, expiry_ns=lasts)
                ends[client, group] = now + lasts
            case "unregister":
                producers.unregister(client, Group(group))
                ends.pop((client, group), None)
            case "excuse":
                producers.excuse(3)
                ends = {each: at + 3 for each, at in ends.items()}
            case _:
                producers.expire(now)
                ends = {each: at for each, at in ends.items() if now <= at}
                assert producers.memberships == len(ends)


@pytest.mark.parametrize("seed", range(10))
def test_members_end_with_their_time_or_their_last_connection(seed: int) -> None:
    chooser, now = random.Random(seed), 0
    groups: Groups[str] = Groups()
    producers: Producers[str] = Producers()
    ends: dict[tuple[str, Group], tuple[int, str]] = {}

    def gone(those: list[tuple[str, Group]]) -> set[Group]:
        for each in those:
            ends.pop(each, None)
        return {group for _, group in those}

    for _ in range(3_000):
        now += chooser.choice((0, 1, 5, 40))
        client, connection = chooser.choice("abc"), chooser.choice("123")
        group = Group(chooser.choice("xyz"))
        match chooser.choice("heartbeat heartbeat unregister excuse close expire expire".split()):
            case "heartbeat":
                lasts = chooser.choice((10, 100, 1_000))
                data = ConsumerData(group=group, subscriptions=())
                is_new = ends.get((client, group), (0, ""))[1] != connection
                changed = groups.heartbeat(client, connection, [data], now_ns=now, expiry_ns=lasts)
                assert changed == ({group} if is_new else set())
                producers.heartbeat(client, connection, [group], now_ns=now, expiry_ns=lasts)
                ends[client, group] = now + lasts, connection
            case "unregister":
                was_known = (client, group) in ends
                assert groups.unregister(client, group) == ({group} if was_known else set())
                producers.unregister(client, group)
                gone([(client, group)])
            case "excuse":
                groups.excuse(3)
                producers.excuse(3)
                ends = {each: (at + 3, by) for each, (at, by) in ends.items()}
            case "close":
                producers.connection_closed(connection)
                closed = gone([each for each, (_, by) in ends.items() if by == connection])
                assert groups.connection_closed(connection) == closed
            case _:
                producers.expire(now)
                ended = gone([each for each, (at, _) in ends.items() if now > at])
                assert groups.expire(now) == ended
        for name in map(Group, "xyz"):
            known = sorted(by for (_, of), (_, by) in ends.items() if of == name)
            assert sorted(groups.connections(name)) == known
            assert sorted(producers.connections(name)) == known
        assert groups.memberships == producers.memberships == len(ends)


class Compared(str):
    """Counts comparisons."""

    count = 0

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return str(self) == other

    __hash__ = str.__hash__


def test_the_end_of_one_connection_does_not_look_at_all_others() -> None:
    """Else a thousand that end together take a thousand times a thousand looks."""
    groups: Groups[Compared] = Groups()
    producers: Producers[Compared] = Producers()
    connections = [Compared(f"c{number}") for number in range(1_000)]
    for each in connections:
        groups.heartbeat(each, each, [ConsumerData(group=G, subscriptions=())], now_ns=0)
        producers.heartbeat(each, each, [G], now_ns=0)
    Compared.count = 0
    for each in connections:
        groups.connection_closed(each)
        producers.connection_closed(each)
    assert groups.memberships == producers.memberships == 0
    assert Compared.count < 20_000
