"""G1: what belongs to one life of a topic counts for nothing in the next.

A deletion ends the life of a topic. Its next life begins with its creation, or with the first
owner that asked for a queue after the deletion: then all that is known of its queues is known of
the life before, and every queue begins anew. A deletion at one broker ends the lives of its queues.
"""

from __future__ import annotations

from typing import NamedTuple

from proxy.history.deliveries import Deliveries
from proxy.history.facts import LaneFacts
from proxy.history.reader import Event

#: Number of an unknown life.
UNKNOWN = -1


class _Deletion(NamedTuple):
    broker: str | None  # None: at all of them
    t_ns: int


class Lives:
    """Numbers the lives of each queue, from 0 on. A *moment* of a topic counts its deletions."""

    def __init__(self) -> None:
        self._deletions: dict[str, list[_Deletion]] = {}

    def now(self, topic: str) -> int:
        """The moment up to the next deletion of *topic* at any broker."""
        return len(self._deletions.get(topic, ()))

    def of(self, topic: str, queue: str | None, moment: int | None = None) -> int:
        """The life that *queue* is in, or is to begin next; at *moment*, if one is given. Of a
        queue that nobody knows each deletion at any broker is taken for one.
        """
        deletions = self._deletions.get(topic)
        return 0 if deletions is None else len(_at(queue, deletions[:moment]))

    def deleted(self, topic: str, t_ns: int, broker: str | None = None) -> None:
        """*topic* is deleted, perhaps at one *broker* alone."""
        self._deletions.setdefault(topic, []).append(_Deletion(broker, t_ns))

    def deleted_ns(self, topic: str, queue: str) -> int:
        """When *topic* was deleted last at the broker of *queue*."""
        deletions = _at(queue, self._deletions.get(topic, []))
        return deletions[-1].t_ns if deletions else 0


def _at(queue: str | None, deletions: list[_Deletion]) -> list[_Deletion]:
    if queue is None:
        return deletions
    return [each for each in deletions if each.broker in (None, broker_of(queue))]


def broker_of(queue: str) -> str:
    """The broker that has *queue*, or the queue that this one is the twin of."""
    return queue.rpartition("_")[0]


class Life:
    """One queue and group in one life of the topic, with its *deliveries*. *former*: the same in
    the life before.
    """

    __slots__ = (
        "_claimed",
        "_deliveries",
        "_epochs",
        "_facts",
        "_foreign",
        "_former",
        "_seen",
        "began_ns",
        "number",
    )

    def __init__(
        self,
        facts: LaneFacts,
        number: int,
        *,
        deliveries: Deliveries,
        former: Life | None,
        began_ns: int,
    ) -> None:
        self._facts = facts
        self._deliveries = deliveries
        self._former = former
        self.number = number
        self.began_ns = began_ns
        self._epochs: set[int] = set()  # of this life
        self._foreign: dict[int, int] = {}  # leases of messages of another life, by offset
        self._seen = -1  # highest offset handed out
        self._claimed = -1  # highest offset that was finished, or lies below a commit

    # ---- whose event it is ----------------------------------------------------------------------

    def is_of_former(self, event: Event) -> bool:
        """True if *event* comes from an ownership period of the life before."""
        epoch = event.get("epoch")
        if self._former is None or epoch is None or self._is_foreign(event):
            return False
        deliveries = self._former._deliveries
        match event["e"]:
            case "ack_ok" | "expire" | "revoke" | "unsent":
                if deliveries.leases.alive(event["lease"], offset=event["offset"]):
                    return True
            case "finish":
                if deliveries.unfinished(event["offset"]) is not None:
                    return not self.has(event["offset"])
        return epoch <= self._former._facts.epoch and epoch not in self._epochs

    def has(self, offset: int) -> bool:
        """True if the message there was handed out in this life."""
        return 0 <= offset <= self._seen and bool(self._facts.flags.get(offset))

    def granted(self, epoch: int) -> None:
        """A period of this life."""
        self._epochs.add(epoch)
        self._foreign.clear()

    # ---- what is not of this life ---------------------------------------------------------------

    def strange(self, event: Event, what: str) -> None:
        """G1: *event* happens in this life and belongs to another one."""
        self._facts.violation(
            "G1",
            f"offset {event['offset']} of a former life of the topic was {what} in life"
            f" {self.number + 1}",
        )

    def strange_delivery(self, event: Event) -> None:
        """G1: a message of another life was handed out; its lease counts for nothing."""
        self._foreign[event["offset"]] = event["lease"]
        self.strange(event, f"handed out as message {event['msg']}")

    def passes_over(self, event: Event) -> bool:
        """True if *event* concerns the lease of a message of another life."""
        passed = self._is_foreign(event)
        if passed and event["e"] == "finish":
            del self._foreign[event["offset"]]
        return passed

    def _is_foreign(self, event: Event) -> bool:
        lease = self._foreign.get(event.get("offset", UNKNOWN))
        return lease is not None and event.get("lease", lease) == lease

    # ---- offsets --------------------------------------------------------------------------------

    def handed_out(self, offset: int) -> None:
        """A message of this life was handed out."""
        self._seen = max(self._seen, offset)
        self._foreign.pop(offset, None)

    def claimed(self, offset: int) -> None:
        """The owner counts all below *offset* as done, or that before it."""
        self._claimed = max(self._claimed, offset - 1)

    @property
    def highest(self) -> int:
        """The highest offset that this life is known to have."""
        return max(self._seen, self._facts.sent.last)

    def judge_end(self) -> None:
        """G1 if an offset counts as done that the former life had, and this one never."""
        if self._former is None or self._former._facts.sent.last < 0:
            return  # producers may not know where their messages stand
        if self.highest < self._claimed <= self._former.highest:
            self._facts.violation(
                "G1",
                f"offset {self._claimed} of a former life of the topic was finished or committed in"
                f" life {self.number + 1}, which had none above {self.highest}",
            )
