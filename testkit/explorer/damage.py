"""Damaged files of brokers, and the operator who acts on what is reported.

1. A damaged message, or a parked copy of one, may be missing from then on, and only that one: once
   a proxy reports it, the operator skips it on record.
2. Damage of an index, of one copy of a table or of a checkpoint costs no message.
3. Damage of an ownership record costs repeated work and pauses, but no message and no order.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from broker_core.names import Group, Topic
from broker_core.store.log_scan import LogScan, LogView
from proxy.core.records.parked_key import parked_topic
from proxy.core.records.record import ownership_topic
from testkit.explorer.topic_changes import Fault
from testkit.simulation.world import BrokerNode, Died, World

#: Patterns of files below a broker's data folder, by kind; "log" is not among them.
FILES = {
    "index": "consumequeue/*/*/*",
    "keys": "index/*",
    "table": "config/*.json",  # without their copies
    "checkpoint": "checkpoint.json",
}
#: By then, everything that the log had is synced.
_SYNCED_S = 2.0
_LOOK_S = 3.0


class Record(NamedTuple):
    """A record of a log: its queue, and its place in a file."""

    topic: str
    queue_id: int
    offset: int
    path: Path
    position: int  # in the file
    size: int


class Damage:
    """Damages files of brokers in *world*, and skips what its proxies report.

    ``wrong``: reports of messages that are intact.
    """

    def __init__(
        self,
        world: World,
        topics: Collection[str],
        groups: Collection[str],
        *,
        fault: Fault,
        start_again: Callable[[BrokerNode], Awaitable[None]],
    ) -> None:
        """Create the actor. Only messages of *topics*, which *groups* read, and parked copies of
        them are damaged.
        """
        self.wrong: list[str] = []
        self._world = world
        self._topics = frozenset(topics)
        self._groups = tuple(groups)
        # Topics of ownership records: their group and topic.
        self._owned = {
            str(ownership_topic(Group(group), Topic(topic))): (group, topic)
            for group in groups
            for topic in topics
        }
        self._parked = {
            str(parked_topic(Group(group), Topic(topic))) for group in groups for topic in topics
        }
        self._fault = fault
        self._start_again = start_again
        self._damaged: dict[tuple[str, str], set[int]] = defaultdict(set)  # by topic and queue
        self._standing: set[str] = set()  # queues whose damage is reported
        self._attending: asyncio.Task[None] | None = None

    async def act(
        self, node: str, file: str, at: float, size: int, zeros: bool, stopped: bool, for_s: float
    ) -> bool:
        """Damage *size* bytes of a file: of a message of the log, or of another kind of *file*.

        Args:
            node: the broker.
            file: "log": a message; "records": an ownership record; or a kind in ``FILES``.
            at: which of the messages, or where in the file, from 0 to 1.
            size: bytes, at most the rest of the message or file.
            zeros: they become zeros; otherwise their bits change.
            stopped: while the broker is killed; it starts again *for_s* later.
            for_s: time until the end of the fault.
        """
        broker = self._world.nodes[node]
        assert isinstance(broker, BrokerNode)
        data = broker.folder / "data"
        if not broker.lives_now:
            return False
        record = None
        if file in ("log", "records"):
            record = self._record(broker.broker_name, data, at, of_owners=file == "records")
            await asyncio.sleep(_SYNCED_S)
            if record is None or not broker.lives_now:
                return False
        if stopped:
            broker.kill()
        if record is not None:
            first = int(at * 1009 % 1 * record.size)  # independent of the choice of the record
            length = min(size, record.size - first)
            done = self._damage(record.path, record.position + first, length, zeros=zeros)
            queue = f"{broker.broker_name}_{record.queue_id}"
            if record.topic in self._topics | self._parked:
                self._damaged[record.topic, queue].add(record.offset)
            else:
                self._tell_of_record(record, queue)
        else:
            done = self._damage_one_of(sorted(data.glob(FILES[file])), at, size, zeros)
        if self._attending is None:
            self._attending = asyncio.get_running_loop().create_task(self._attend())

        async def end() -> None:
            if stopped:
                await self._start_again(broker)

        await self._fault("damage", node, for_s, end)
        return done

    def end(self) -> None:
        """Let the operator go."""
        if self._attending is not None:
            self._attending.cancel()

    # ---- files ----------------------------------------------------------------------------------

    def _tell_of_record(self, record: Record, queue: str) -> None:
        group, topic = self._owned[record.topic]
        about = {"what": "records", "target": queue, "queue": queue}
        for phase in ("begin", "end"):
            self._world.nemesis.write("nemesis", **about, group=group, topic=topic, phase=phase)

    def _record(self, broker: str, data: Path, at: float, *, of_owners: bool) -> Record | None:
        """Return an ownership record, or the record of a parked copy or of a message of ``topics``,
        if possible of one that some group has not received; never the last record of the log.
        """
        records = list(records_of(data / "commitlog"))[:-1]
        if of_owners:
            records = [each for each in records if each.topic in self._owned]
            return records[int(at * len(records))] if records else None
        own = [each for each in records if each.topic in self._topics]
        received: dict[str, set[tuple[str, str, int]]] = {name: set() for name in self._groups}
        for event in self._world.events:
            if event["e"] == "deliver" and event["group"] in received:
                place = event["topic"], event["queue"], event["offset"]
                received[event["group"]].add(place)
        everywhere = set.intersection(*received.values()) if received else set()
        unread = [
            each
            for each in own
            if (each.topic, f"{broker}_{each.queue_id}", each.offset) not in everywhere
        ]
        chosen = [each for each in records if each.topic in self._parked] + (unread or own)
        return chosen[int(at * len(chosen))] if chosen else None

    def _damage_one_of(self, paths: list[Path], at: float, size: int, zeros: bool) -> bool:
        used = [path for path in paths if path.read_bytes().rstrip(b"\0")]
        if not used:
            return False
        path = used[int(at * len(used))]
        length = len(path.read_bytes().rstrip(b"\0"))
        position = int(at * 1009 % 1 * length)  # independent of the choice of the file
        return self._damage(path, position, min(size, length - position), zeros=zeros)

    def _damage(self, path: Path, position: int, size: int, *, zeros: bool) -> bool:
        if not path.exists():
            return False  # retention deleted it
        content = path.read_bytes()[position : position + size]
        damaged = bytes(len(content)) if zeros else bytes(each ^ 0x11 for each in content)
        self._world.disk.damage(path, position, damaged)
        return damaged != content

    # ---- the operator ---------------------------------------------------------------------------

    async def _attend(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_S)
            seen: set[str] = set()
            for proxy in self._world.proxies:
                if not proxy.runs:
                    continue
                try:
                    status, groups = await self._world.http(proxy, "/api/groups")
                except Died:
                    return
                if status != 200:
                    continue
                for group, view in groups.items():
                    for queue in view["queues"]:
                        if queue["damaged"]:
                            seen.add(f"{group} {queue['topic']}/{queue['queue']}")
                            await self._skip(proxy, group, queue)
            self._report(seen)

    async def _skip(self, proxy: Any, group: str, queue: dict[str, Any]) -> None:
        """Skip a damaged message."""
        topic, name = queue["topic"], queue["queue"]
        begin, end = queue["damaged_from"], queue["damaged_until"]
        if not set(range(begin, end)) <= self._damaged[topic, name]:
            self.wrong.append(f"{topic}/{name}: intact messages {begin} to {end - 1} are reported")
            return
        path = f"/api/groups/{group}/topics/{queue['for_topic']}/queues/{queue['name']}/skip"
        await self._world.http(proxy, path, {"offset": begin, "reason": "damaged on disk"})

    def _report(self, seen: set[str]) -> None:
        """Note begin and end of the times in which queues stand at damaged messages."""
        for phase, places in (("begin", seen - self._standing), ("end", self._standing - seen)):
            for place in sorted(places):
                self._world.nemesis.write("nemesis", what="stands", target=place, phase=phase)
        self._standing = seen


def records_of(folder: Path) -> Iterator[Record]:
    """Yield the intact records of the log in *folder*."""
    with closing(LogView.of_files(folder)) as view:
        if not view.segments:
            return
        for message in LogScan(view, start=view.segments[0].start):
            segment = view.segment_at(message.physical_offset)
            assert segment is not None
            position = message.physical_offset - segment.start
            place = message.queue_id, message.queue_offset
            yield Record(str(message.topic), *place, segment.path, position, message.size)
