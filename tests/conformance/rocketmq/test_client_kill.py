"""Three orderly consumers of RocketMQ's own client on our broker; one joins, one is killed."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import defaultdict, deque
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker_core.broker.groups.offsets import CommittedOffsets
from broker_core.broker.groups.queue_locks import QueueLocks
from broker_core.clock import now_ns
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.key_hash import queue_index
from broker_core.remoting.message import OutgoingMessage
from broker_core.tasks import spawn
from testkit.eventually import eventually
from testkit.rocketmq import VERSIONS
from tests.conformance.rocketmq.java_client import (
    ORDERLY,
    JavaClient,
    JavaClients,
    Seen,
    Stage,
    stage,
)

pytestmark = pytest.mark.parametrize("version", VERSIONS)

MESSAGES = 50_000
KEYS = 1000
QUEUES = 8
EXPIRY_S = 5.0
FEATURE = "orderly: 50,000 messages, one consumer joins, one is killed"


class Change(NamedTuple):
    """A queue was given to a client, or (None) returned by it."""

    at: int
    client_id: str | None


class BrokerHistory:
    """The broker's locks and commits, recorded as they happen."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.owners: dict[int, list[Change]] = defaultdict(list)
        self.renewed: dict[int, int] = {}
        self.commits: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self.too_early: list[str] = []
        lock, unlock, commit = QueueLocks.lock, QueueLocks.unlock, CommittedOffsets.commit

        def recorded_lock(
            locks: QueueLocks,
            group: Group,
            client_id: str,
            queues: Any,
            *,
            now_ns: int,
            **more: Any,
        ) -> Any:
            grant = lock(locks, group, client_id, queues, now_ns=now_ns, **more)
            for queue in grant.queues:
                self._granted(queue, client_id, now_ns)
            return grant

        def recorded_unlock(
            locks: QueueLocks, group: Group, client_id: str, queues: Any, **more: Any
        ) -> None:
            unlock(locks, group, client_id, queues, **more)
            for queue in queues:
                if (changes := self.owners[queue.queue_id]) and changes[-1].client_id == client_id:
                    changes.append(Change(now_ns(), None))

        def recorded_commit(
            offsets: CommittedOffsets, group: Group, topic: Topic, queue: int, at: int, **more: Any
        ) -> int | None:
            if not topic.startswith("%"):
                self.commits[queue].append((now_ns(), at))
            return commit(offsets, group, topic, queue, at, **more)

        patch.setattr(QueueLocks, "lock", recorded_lock)
        patch.setattr(QueueLocks, "unlock", recorded_unlock)
        patch.setattr(CommittedOffsets, "commit", recorded_commit)

    def _granted(self, queue: QueueName, client_id: str, at: int) -> None:
        if queue.topic.startswith("%"):
            return
        changes = self.owners[queue.queue_id]
        owner = changes[-1].client_id if changes else None
        if owner not in (None, client_id) and at - self.renewed[queue.queue_id] < EXPIRY_S * 1e9:
            self.too_early.append(f"{queue} to {client_id} while {owner} holds it")
        if owner != client_id:
            changes.append(Change(at, client_id))
        self.renewed[queue.queue_id] = at

    def owner(self, queue_id: int, at: int) -> str | None:
        """Return the client to which the broker last gave the queue at that time.

        A client that returned it counts until another has it: 4.9's client may begin a message
        while its own unlock is in flight.
        """
        changes = self.owners[queue_id]
        place = bisect_right(changes, at, key=lambda change: change.at)
        given = (change.client_id for change in reversed(changes[:place]))
        return next((client_id for client_id in given if client_id is not None), None)

    def may_begin(self, queue_id: int, at: int) -> set[int]:
        """Return the group's offsets at the broker from when it gave the queue away until *at*.

        The new owner requests one once in that time; a last commit of the previous owner may come
        before or after that.
        """
        place = bisect_right(self.owners[queue_id], at, key=lambda change: change.at)
        given = self.owners[queue_id][place - 1].at
        commits = self.commits[queue_id]
        first = bisect_right(commits, given, key=lambda commit: commit[0])
        last = bisect_right(commits, at, key=lambda commit: commit[0])
        had_then = commits[first - 1][1] if first else 0
        return {had_then, *(offset for _, offset in commits[first:last])}


@pytest.mark.feature(FEATURE)
@pytest.mark.slow
async def test_no_key_out_of_order_none_lost_no_queue_with_two_owners(
    version: str, java_clients: JavaClients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = BrokerHistory(monkeypatch)
    processes = {name: java_clients.another(version, ORDERLY) for name in ("a", "b", "c")}
    async with stage(processes["a"], tmp_path, queues=QUEUES, lock_expiry_s=EXPIRY_S) as scene:
        for name in ("a", "b"):
            await consume(scene, name, processes[name])
        producing = spawn(produce(scene, 0, MESSAGES // 2), name="produce")
        await eventually(lambda: have_handled(processes, MESSAGES // 5), within_s=120)
        await consume(scene, "c", processes["c"])
        await producing
        await owns_some(scene, "c", processes["c"])
        producing = spawn(produce(scene, MESSAGES // 2, MESSAGES), name="produce")
        await eventually(lambda: len(processes["c"].handled) > 500, within_s=120)
        processes["b"].kill()
        assert handled(processes) < MESSAGES
        await producing
        await eventually(lambda: have_handled(processes, MESSAGES), within_s=120)
        for name in ("a", "c"):
            await processes[name].call("close", name)
            processes[name].kill()  # frees its memory; no other test uses it
        begun = sorted((s for p in processes.values() for s in p.seen()), key=lambda s: s.at)
        ended = [s for p in processes.values() for s in p.seen(event="end")]
    check_owners(history, begun, ended)
    check_order(history, begun)
    assert {s.name for s in begun} == {"a", "b", "c"}


async def consume(scene: Stage, name: str, java: JavaClient) -> None:
    await scene.start(
        "push", name, java=java, orderly=True, tags="*", handleMicros=200, persistMs=1000,
        **{"from": "FIRST_OFFSET"},
    )  # fmt: skip


async def owns_some(scene: Stage, name: str, java: JavaClient) -> None:
    async with asyncio.timeout(60):
        while not any(each["locked"] for each in await java.call("owned", name)):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def produce(scene: Stage, begin: int, end: int) -> None:
    """Send message n as number n // KEYS of key n % KEYS; a key's messages are in order."""
    queues = await scene.ours.queues(scene.topic, fresh=True)
    for first in range(begin, end, 2000):
        of_queue: dict[QueueName, list[OutgoingMessage]] = defaultdict(list)
        for n in range(first, min(first + 2000, end)):
            key = f"key-{n % KEYS}"
            queue = queues[queue_index(key, len(queues))]
            body = b"%d:%d" % (n % KEYS, n // KEYS)
            of_queue[queue].append(OutgoingMessage(scene.topic, body, key=key))
        for queue, messages in of_queue.items():
            await scene.ours.send_batch(queue, messages)


def handled(processes: dict[str, JavaClient]) -> int:
    return len(set().union(*(process.handled.copy() for process in processes.values())))


def have_handled(processes: dict[str, JavaClient], count: int) -> bool:
    """Count distinct messages only once enough were handled: counting blocks the broker here."""
    there = sum(len(process.handled) for process in processes.values())
    return there >= count and handled(processes) >= count


def check_owners(history: BrokerHistory, begun: list[Seen], ended: list[Seen]) -> None:
    """Check that one process at a time handles a queue, and that the broker gave it to that one."""
    assert history.too_early == []
    # A process may handle a message twice, if it lost the queue and got it back from a process that
    # was killed before committing. The first end belongs to the first begin.
    ends: dict[tuple[str, int, int], deque[int]] = defaultdict(deque)
    for seen in ended:
        ends[seen.name, seen.queue, seen.offset].append(seen.at)
    busy_until: dict[int, tuple[int, str]] = {}
    for seen in begun:
        until, by = busy_until.get(seen.queue, (0, ""))
        assert seen.at >= until or by == seen.name, f"{seen} while {by} handles the queue"
        own_ends = ends[seen.name, seen.queue, seen.offset]
        busy_until[seen.queue] = (own_ends.popleft() if own_ends else seen.at, seen.name)
        owner = history.owner(seen.queue, seen.at) or ""
        assert owner.partition("@")[2].startswith(f"{seen.name}-"), f"{seen}: {owner} owns it"


def check_order(history: BrokerHistory, begun: list[Seen]) -> None:
    """Check each queue's offsets: consecutive; only a new owner returns to the committed one."""
    last: dict[int, Seen] = {}
    back = 0
    of_key: dict[str, list[int]] = defaultdict(list)
    for seen in begun:
        before = last.get(seen.queue)
        wanted = before.offset + 1 if before else 0
        if seen.offset != wanted:
            assert before is not None
            assert seen.offset < wanted, f"{seen} skips {wanted}"
            assert seen.offset in history.may_begin(seen.queue, seen.at), seen
            back += 1
        last[seen.queue] = seen
    for seen in begun:
        key, _, number = seen.body.partition(":")
        numbers = of_key[key]
        if not numbers or int(number) > numbers[-1]:
            numbers.append(int(number))
    assert back < QUEUES * 4
    assert len(of_key) == KEYS
    assert all(numbers == list(range(MESSAGES // KEYS)) for numbers in of_key.values())
