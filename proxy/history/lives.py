"""G1: offsets, commits and leases of one life of a topic do not count in the next one.

A deletion ends the life of a topic. Its next life begins with its creation, or with the first owner
that requested a queue after the deletion; every queue then starts over. A deletion at one broker
ends the lives of that broker's queues.

A restored log ends a life too. The next one continues it up to the end of the copy: messages below
it are the same, may be delivered again, and are owed unless they had finished before.
"""

from __future__ import annotations

from typing import NamedTuple

from proxy.history.deliveries import Deliveries
from proxy.history.facts import LaneFacts
from proxy.history.reader import Event

#: Number of an unknown life.
UNKNOWN = -1


class _Deletion(NamedTuple):
    broker: str | None  # None: all brokers
    t_ns: int


class Lives:
    """Numbers the lives of each queue from 0. A *moment* of a topic counts its deletions."""

    def __init__(self) -> None:
        self._deletions: dict[str, list[_Deletion]] = {}

    def now(self, topic: str) -> int:
        """Return the current moment of *topic*: its deletions so far at any broker."""
        return len(self._deletions.get(topic, ()))

    def of(self, topic: str, queue: str | None, moment: int | None = None) -> int:
        """Return the life of *queue*, now or at *moment*; of a deleted queue, the next one. For
        None, a deletion at any broker counts.
        """
        deletions = self._deletions.get(topic)
        return 0 if deletions is None else len(_at(queue, deletions[:moment]))

    def deleted(self, topic: str, t_ns: int, broker: str | None = None) -> None:
        """Record the deletion of *topic*, at all brokers or at *broker* only."""
        self._deletions.setdefault(topic, []).append(_Deletion(broker, t_ns))

    def deleted_ns(self, topic: str, queue: str, life: int | None = None) -> int:
        """Return the time of the last deletion of *topic* at the broker of *queue*, or of the last
        before *life*.
        """
        deletions = _at(queue, self._deletions.get(topic, []))[:life]
        return deletions[-1].t_ns if deletions else 0


def _at(queue: str | None, deletions: list[_Deletion]) -> list[_Deletion]:
    if queue is None:
        return deletions
    return [each for each in deletions if each.broker in (None, broker_of(queue))]


def broker_of(queue: str) -> str:
    """Return the broker of *queue*, or of the queue whose twin it is."""
    return queue.rpartition("_")[0]


class Life:
    """One queue and group in one life of the topic; *former* is its previous life."""

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
        self._seen = -1  # highest delivered offset
        self._claimed = -1  # highest offset finished or below a commit

    # ---- lives of events ------------------------------------------------------------------------

    def is_of_former(self, event: Event) -> bool:
        """Return True if *event* comes from an ownership period of the previous life."""
        epoch = event.get("epoch")
        if self._former is None or epoch is None or self._concerns_foreign(event):
            return False
        if epoch in self._epochs and epoch > self._former._facts.epoch:
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
        """Return True if the message at *offset* was delivered in this life."""
        return 0 <= offset <= self._seen and bool(self._facts.flags.get(offset))

    def granted(self, epoch: int) -> None:
        """Note an ownership period of this life."""
        self._epochs.add(epoch)
        self._foreign.clear()

    # ---- events of other lives ------------------------------------------------------------------

    def report(self, event: Event, what: str) -> None:
        """Report G1: *event* happened in this life but belongs to another one."""
        self._facts.violation(
            "G1",
            f"offset {event['offset']} of a former life of the topic was {what} in life"
            f" {self.number + 1}",
        )

    def report_delivery(self, event: Event) -> None:
        """Report G1: a message of another life was delivered; ignore its lease."""
        self._foreign[event["offset"]] = event["lease"]
        self.report(event, f"delivered as message {event['msg']}")

    def ignores(self, event: Event) -> bool:
        """Return True if *event* concerns the lease of a message of another life."""
        passed = self._concerns_foreign(event)
        if passed and event["e"] == "finish":
            del self._foreign[event["offset"]]
        return passed

    def _concerns_foreign(self, event: Event) -> bool:
        lease = self._foreign.get(event.get("offset", UNKNOWN))
        return lease is not None and event.get("lease", lease) == lease

    # ---- offsets --------------------------------------------------------------------------------

    def delivered(self, offset: int) -> None:
        """Note the delivery of a message of this life."""
        self._seen = max(self._seen, offset)
        self._foreign.pop(offset, None)

    def claimed(self, offset: int) -> None:
        """Note that an owner, here or in the previous life, counts all offsets below *offset* as
        done.
        """
        self._claimed = max(self._claimed, offset - 1)

    @property
    def highest(self) -> int:
        """The highest offset known in this life."""
        return max(self._seen, self._facts.sent.last, self._facts.kept - 1)

    def judge_end(self) -> None:
        """Report G1 if an offset counts as done that only the previous life had."""
        if self._former is None or self._former._facts.sent.last < 0:
            return  # the histories may lack the places of the sends
        if "tags" in (self._facts.rules.filters or ()):
            return  # a message of an unanswered send that they leave out is in no event
        if self.highest < self._claimed <= self._former.highest:
            self._facts.violation(
                "G1",
                f"offset {self._claimed} of a former life of the topic was finished or committed in"
                f" life {self.number + 1}, which had none above {self.highest}",
            )
