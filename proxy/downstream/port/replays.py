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


class ClientName(NamedTuple):
    """A client: its group and the name that it chose."""

    group: str
    client: str


class RequestName(NamedTuple):
    """One pull of one client."""

    client: ClientName
    request_id: str


@dataclass(frozen=True, slots=True)
class _Leases:
    """Leases of one queue and ownership period in an answer.

    *topic* is the name that clients use; it differs from the queue's own topic for redriven copies
    of parked messages.
    """

    queue: QueueName
    topic: Topic
    epoch: Epoch
    leases: tuple[LeaseId, ...]


@dataclass(frozen=True, slots=True)
class _Answer:
    parts: tuple[_Leases, ...]
    until_ns: int

    @property
    def leases(self) -> int:
        return sum(len(part.leases) for part in self.parts)


@dataclass(slots=True)
class Replays:
    """Answers that may be requested again; times in ns. O(1) per lease kept or repeated."""

    max_leases: int = 100_000
    _clients: dict[ClientName, dict[str, _Answer]] = field(
        default_factory=dict
    )  # least recently active first
    _leases: int = 0

    def __len__(self) -> int:
        """Number of kept leases; some may belong to expired answers."""
        return self._leases

    def keep(self, name: RequestName, batches: Iterable[Batch], *, now_ns: int) -> None:
        """Keep *batches* as the answer to *name*. Raises ValueError if there are none."""
        batches = list(batches)
        parts = tuple(
            _Leases(
                batch.pipeline.queue,
                batch.pipeline.topic,
                batch.pipeline.epoch,
                tuple([lease.lease_id for lease in batch.leases]),
            )
            for batch in batches
        )
        # All leases of one delivery have the same deadline.
        until_ns = max(batch.leases[0].deadline_ns for batch in batches)
        answers = self._clients.pop(name.client, {})
        self._drop(answers, [name.request_id])  # any earlier answer under this id has ended
        self._drop(answers, [old for old, each in answers.items() if each.until_ns <= now_ns])
        self._drop(answers, list(answers)[: max(0, len(answers) - ANSWERS + 1)])
        answers[name.request_id] = answer = _Answer(parts, until_ns)
        self._leases += answer.leases
        self._clients[name.client] = answers  # last: most recently active
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
        answer = self._clients.get(name.client, {}).get(name.request_id)
        batches: list[Batch] = []
        for part in answer.parts if answer is not None else ():
            if topics is not None and part.topic not in topics:
                continue
            pipeline = pipeline_of(part.queue)
            if pipeline is None or pipeline.epoch != part.epoch:
                continue
            found = [pipeline.leases.live(each) for each in part.leases]
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
            client = next(iter(self._clients))
            answers = self._clients[client]
            ended = all(answer.until_ns <= now_ns for answer in answers.values())
            if not ended and self._leases <= self.max_leases:
                return
            self._drop(answers, list(answers))
            del self._clients[client]

    def _drop(self, answers: dict[str, _Answer], ids: Iterable[str]) -> None:
        for request_id in ids:
            if (answer := answers.pop(request_id, None)) is not None:
                self._leases -= answer.leases
