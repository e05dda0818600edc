"""Parked and paused keys of queues without an owner, as their last ownership records list them.

Any proxy can read the records, so these keys are shown even if no proxy has clients of the group.
What records do not tell, such as the messages of a paused key, is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.tasks import all_results
from proxy.core.keys.order_key import key_of, key_text
from proxy.core.pipeline.key_views import KeyState
from proxy.core.records.parked_key import parked_topic
from proxy.core.records.record import Snapshot
from proxy.core.records.replay import LastOwner
from proxy.errors import UnknownName
from proxy.upstream.broker_questions import BrokerQuestions
from proxy.upstream.context import UpstreamContext
from proxy.upstream.ownership.owner_book import OwnerBook, OwnerRow

#: Of a key without an owner. Its messages are known only if they are spilled.
_UNKNOWN: dict[str, Any] = dict.fromkeys(
    (
        *("offset", "age_ms", "backlog", "copies", "spilled", "attempts", "holder", "lease"),
        *("lease_ends_ms", "retry_ms", "not_copied"),
    )
)


@dataclass(frozen=True, slots=True)
class RecordedQueue:
    """The last records of a queue without an owner, and of its parked copies. ``copies_end``: end
    offset of the latter, None if unknown.
    """

    queue: QueueName
    last: Snapshot
    copied: Snapshot | None = None
    copies_end: int | None = None

    @property
    def place(self) -> str:
        """The queue, without its topic."""
        return self.queue.qid

    def named(self, text: str) -> bytes:
        """Return the key that is displayed as *text*."""
        known = (key for key in (*self.last.parked, *self.last.paused) if key_text(key) == text)
        return next((key for key in known if key is not None), key_of(text))

    def parked(self, key: bytes) -> dict[str, Any]:
        """Return the state of a parked *key*, as its owner would show it."""
        parked = self.last.parked[key]
        copied = None if self.copied is None else self.copied.parked.get(key)
        is_redriven = copied is not None and copied.redriven
        return {
            "key": key_text(key),
            "topic": self.queue.topic,
            "queue": self.place,
            "state": "redriven" if is_redriven else "parked",
            "copies": self._copies(key),
            "not_copied": None if self.last.unfinished else _spilled(self.last, key),
            "by": parked.by,
            "reason": parked.reason,
            "note": parked.note,
            "redriven_by": copied.by if copied is not None and is_redriven else "",
        }

    def row(self, key: bytes) -> dict[str, Any]:
        """Return the state of a parked or paused *key*, as its owner would show it."""
        pause = self.last.paused.get(key)
        row = {
            **_UNKNOWN,
            "key": key_text(key),
            "topic": self.queue.topic,
            "queue": self.place,
            "state": KeyState.PAUSED,
            "overdue": False,
            "last_error": "",
            "by": "" if pause is None else pause.by,
            "reason": "" if pause is None else pause.reason,
            "note": "" if pause is None else pause.note,
            "redriven_by": "",
            **(self.parked(key) if key in self.last.parked else {}),
        }
        return {**row, "paused": pause is not None}

    def _copies(self, key: bytes) -> int | None:
        copied = self.copied
        if copied is None or copied.unfinished or self.copies_end is None:
            return None
        return None if self.copies_end > copied.read else _spilled(copied, key)


@dataclass(frozen=True, slots=True)
class RecordedQueues:
    """Queues without an owner, and the errors of brokers that did not answer, by name."""

    queues: tuple[RecordedQueue, ...] = ()
    unanswered: Mapping[str, str] = field(default_factory=dict)


def _spilled(snapshot: Snapshot, key: bytes) -> int:
    return len(snapshot.spilled.get(key, ()))


class RecordedKeys:
    """Reads the last records of queues without an owner."""

    def __init__(self, context: UpstreamContext, book: OwnerBook) -> None:
        self._context = context
        self._book = book

    async def queues(
        self, group: Group, topic: Topic, *, but: Iterable[QueueName]
    ) -> RecordedQueues:
        """Return the queues of *topic* without an owner, those of *but* left out, as far as records
        know them and their brokers answer.
        """
        left_out, ask = set(but), BrokerQuestions()
        try:
            known = await self._book.queues(group, topic)
        except UnknownName:
            return RecordedQueues()  # the topic does not exist yet
        except RemotingError as error:
            ask.note(f"the brokers of {topic}", error)
            return RecordedQueues(unanswered=ask.unanswered)

        async def at_broker(there: list[QueueName]) -> list[RecordedQueue | None]:
            rows = await self._book.rows(group, there)
            free = [row for row in rows if row.state != "owned"]
            return await all_results(*(self._of(group, row) for row in free))

        answers = await ask.ask_each((each for each in known if each not in left_out), at_broker)
        found = (each for answer in answers for each in answer if each is not None)
        return RecordedQueues(tuple(found), ask.unanswered)

    async def _of(self, group: Group, row: OwnerRow) -> RecordedQueue | None:
        if row.last is None or row.last.snapshot is None:
            return None
        snapshot, queue = row.last.snapshot, row.queue
        if not snapshot.parked:
            return RecordedQueue(queue, snapshot)
        twin = queue._replace(topic=parked_topic(group, queue.topic))
        copied: LastOwner | None = await self._context.log.owner(group, twin)
        if copied is None:
            return RecordedQueue(queue, snapshot)
        end = await self._context.client.max_offset(twin)
        return RecordedQueue(queue, snapshot, copied.snapshot, end)


def without(rows: Sequence[OwnerRow], us: str) -> tuple[list[OwnerRow], list[OwnerRow]]:
    """Split *rows* into the queues that other proxies than *us* own, and those without an owner."""
    others: list[OwnerRow] = []
    free: list[OwnerRow] = []
    for row in rows:
        owner = row.last.own.owner if row.last is not None and row.state == "owned" else us
        (free if owner == us else others).append(row)
    return others, free
