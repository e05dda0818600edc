"""Answers that a client may ask for once more, under the same ``requestId``. Pure.

A pull's answer can be lost after its messages were leased. Asked for again, the same leases are
given, as far as they are alive; nothing is leased twice, and none waits longer than its deadline.

Kept are the names of leases, no jobs and no bodies: what a queue held goes when the queue goes.

R1  The same id of the same client gets the leases of its answer that are alive, and no other; of
    the topics that it asks for now, for its rights were looked at for these.
R2  The last ``ANSWERS`` answers of a client are kept, each until its leases must have ended.
R3  Over all clients at most ``max_leases`` are named; the client longest unheard of is forgotten.
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

#: Answers kept of one client.
ANSWERS = 4


class ClientName(NamedTuple):
    """Who asked: a group and the name that the client gave itself."""

    group: str
    client: str


class RequestName(NamedTuple):
    """One pull of one client."""

    client: ClientName
    request_id: str


@dataclass(frozen=True, slots=True)
class _Part:
    """The leases of one queue and ownership period in an answer. *topic*: as clients name it; the
    queue's own topic is another one where copies of parked messages are redriven.
    """

    queue: QueueName
    topic: Topic
    epoch: Epoch
    leases: tuple[LeaseId, ...]


@dataclass(frozen=True, slots=True)
class _Answer:
    parts: tuple[_Part, ...]
    until_ns: int

    @property
    def leases(self) -> int:
        return sum(len(part.leases) for part in self.parts)


@dataclass(slots=True)
class Replays:
    """The answers that may be asked for again; times in ns. O(1) a lease kept or given again."""

    max_leases: int = 100_000
    _clients: dict[ClientName, dict[str, _Answer]] = field(default_factory=dict)  # oldest first
    _leases: int = 0

    def __len__(self) -> int:
        """How many leases are named; those of answers that have ended may be among them."""
        return self._leases

    def keep(self, name: RequestName, batches: Iterable[Batch], *, now_ns: int) -> None:
        """*batches* are the answer to *name*. Raises ValueError if there are none."""
        batches = list(batches)
        parts = tuple(
            _Part(
                batch.pipeline.queue,
                batch.pipeline.topic,
                batch.pipeline.epoch,
                tuple([lease.lease_id for lease in batch.leases]),
            )
            for batch in batches
        )
        # All of one hand-out have the same deadline.
        until_ns = max(batch.leases[0].deadline_ns for batch in batches)
        answers = self._clients.pop(name.client, {})
        self._drop(answers, [name.request_id])  # what it had under this id has ended
        self._drop(answers, [old for old, each in answers.items() if each.until_ns <= now_ns])
        self._drop(answers, list(answers)[: max(0, len(answers) - ANSWERS + 1)])
        answers[name.request_id] = answer = _Answer(parts, until_ns)
        self._leases += answer.leases
        self._clients[name.client] = answers  # behind the others: heard of last
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
        """The answer to *name* once more, for *holder* now, as far as it is of *topics* (None: of
        any); empty: there is nothing to repeat.
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
        """Drop the clients longest unheard of: those whose leases have ended, and one too many."""
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
