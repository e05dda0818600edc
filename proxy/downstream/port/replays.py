"""Answers that a client may request again under the same ``requestId``. Pure.

The answer to a pull can be lost after its messages were leased. A repeated request gets the same
leases, if they are alive: no message is leased twice, and none waits beyond its deadline.

Only lease names are kept, without jobs and bodies: they never outlive their queue's state.

R1  The same id of the same client gets the live leases of its answer, and no others; limited to the
    topics of the new request, for which its rights were checked.
R2  The last ``ANSWERS`` answers of a client are kept, each until its leases must have ended.
R3  At most ``max_leases`` leases are kept over all clients; the least recently active client is
    forgotten first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from broker_core.names import QueueName, Topic
from proxy.core.group.group_buffer import Batch
from proxy.core.keys.ids import Epoch, LeaseId
from proxy.core.leases.lease_book import Holder
from proxy.core.pipeline.queue_pipeline import QueuePipeline

#: Answers kept per client.
ANSWERS = 4


#: A client: its group and the name that it chose.
ClientName = tuple[str, str]
#: Leases of one queue in an answer: queue, topic, ownership period, ids. The topic is the name that
#: clients use; it differs from the queue's own topic for redriven copies of parked messages.
_Leases = tuple[QueueName, Topic, Epoch, list[LeaseId]]


class RequestName(NamedTuple):
    """One pull of one client."""

    client: ClientName
    request_id: str


class _Answer(NamedTuple):
    parts: list[_Leases]
    until_ns: int
    leases: int  # in all parts


@dataclass(slots=True)
class _Client:
    """The last answers of one client, the oldest first."""

    answers: dict[str, _Answer] = field(default_factory=dict)
    until_ns: int = 0  # after that, none can be repeated
    leases: int = 0

    def keep(self, request_id: str, answer: _Answer, now_ns: int) -> int:
        """Keep *answer*; return how many more leases are kept, which may be negative."""
        before, answers = self.leases, self.answers
        if request_id in answers:  # that answer has ended
            self.leases -= answers.pop(request_id).leases
        while answers:
            oldest = next(iter(answers))
            if answers[oldest].until_ns > now_ns and len(answers) < ANSWERS:
                break
            self.leases -= answers.pop(oldest).leases
        answers[request_id] = answer
        self.leases += answer.leases
        if answer.until_ns > self.until_ns:
            self.until_ns = answer.until_ns
        return self.leases - before


@dataclass(slots=True)
class Replays:
    """Answers that may be requested again; times in ns. O(1) per lease kept or repeated."""

    max_leases: int = 100_000
    _clients: dict[ClientName, _Client] = field(default_factory=dict)  # least recently active first
    _leases: int = 0

    def __len__(self) -> int:
        """Number of kept leases; some may belong to expired answers."""
        return self._leases

    def keep(self, name: RequestName, batches: Iterable[Batch], *, now_ns: int) -> None:
        """Keep *batches* as the answer to *name*. Raises ValueError if there are none."""
        parts: list[_Leases] = []
        count = until_ns = 0
        for pipeline, leases in batches:
            ids = [lease.lease_id for lease in leases]
            parts.append((pipeline.queue, pipeline.topic, pipeline.epoch, ids))
            count += len(ids)
            # All leases of one delivery have the same deadline.
            if (deadline_ns := leases[0].deadline_ns) > until_ns:
                until_ns = deadline_ns
        if not parts:
            raise ValueError(f"the answer to {name.request_id!r} has no leases to keep")
        client = self._clients.pop(name.client, None)
        if client is None:
            client = _Client()
        self._leases += client.keep(name.request_id, _Answer(parts, until_ns, count), now_ns)
        self._clients[name.client] = client  # last: most recently active
        self._forget(now_ns)

    def find(
        self,
        name: RequestName,
        pipeline_of: Callable[[QueueName], QueuePipeline | None],
        *,
        topics: Collection[Topic] | None,
        holder: Holder,
        now_ns: int,
    ) -> list[Batch]:
        """Return the answer to *name* again, for *holder*, limited to *topics* (None: all). Empty
        if there is nothing to repeat.
        """
        client = self._clients.get(name.client)
        answer = None if client is None else client.answers.get(name.request_id)
        batches: list[Batch] = []
        for queue, topic, epoch, lease_ids in answer.parts if answer is not None else ():
            if topics is not None and topic not in topics:
                continue
            pipeline = pipeline_of(queue)
            if pipeline is None or pipeline.epoch != epoch:
                continue
            found = [pipeline.leases.live(each) for each in lease_ids]
            alive = [lease for lease in found if lease is not None and lease.deadline_ns > now_ns]
            for lease in alive:
                lease.held_by(holder)
            if alive:
                batches.append(Batch(pipeline, alive))
        return batches

    def _forget(self, now_ns: int) -> None:
        """Drop the least recently active clients: those without live leases, and one over the
        limit.
        """
        while self._clients:
            name = next(iter(self._clients))
            client = self._clients[name]
            if client.until_ns > now_ns and self._leases <= self.max_leases:
                return
            self._leases -= client.leases
            del self._clients[name]
