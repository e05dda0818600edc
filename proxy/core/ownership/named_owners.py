"""Effect of assignments by name on the queues that a member tries to own. Pure.

Lock and epoch decide who owns a queue; this module only decides who requests the lock. A named
member requests it for a while, and keeps a queue as long as it owns it. The others leave the queue
alone while the named member is present and owns it, or may still come for it; after that, shares
apply as usual. Times are ns.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence

from broker_core.names import QueueName, Topic

#: Time after which a queue left alone is tried again, because its owner may have lost it.
_LEAVE_NS = 5_000_000_000
#: The same for a queue not yet taken over.
_WAIT_NS = 1_000_000_000


class Handoffs:
    """One member's knowledge of queues assigned by name."""

    def __init__(self, *, expect_ns: int, wait_ns: int) -> None:
        """*expect_ns*: how long the named member requests the queue, beginning before the
        hand-over.
        *wait_ns*: how long the others wait for it after the hand-over, if it is still a member.
        """
        self._expect_ns = expect_ns
        self._wait_ns = wait_ns
        self._expected: dict[QueueName, int] = {}  # until when, unless it is owned
        self._left: dict[QueueName, tuple[str, int]] = {}  # named member, and until when
        self._awaited: set[QueueName] = set()  # of those: not yet taken over, as far as known
        self._given: dict[QueueName, tuple[int, int]] = {}  # epoch that ended so, and when seen

    def expect(self, queue: QueueName, *, now_ns: int) -> None:
        """Expect *queue*, which is assigned to this member."""
        self._leave_no_more(queue)
        self._expected[queue] = now_ns + self._expect_ns

    def expect_none(self, queues: Sequence[QueueName]) -> None:
        """Stop expecting *queues*, all of one topic that this member does not want, rising."""
        for queue in [each for each in self._expected if _is_in(queues, each)]:
            del self._expected[queue]

    def expects(self, queue: QueueName) -> bool:
        """Return True if *queue* is assigned to this member, whether it waits for it or has it."""
        return queue in self._expected

    def expects_any(self, topic: Topic) -> bool:
        """Return True if a queue of *topic* is assigned to this member."""
        return any(each.topic == topic for each in self._expected)

    def give(self, queue: QueueName, to: str, *, now_ns: int) -> None:
        """Note that this member hands, or handed, *queue* to *to*."""
        self._expected.pop(queue, None)
        self._wait_for(queue, to, now_ns=now_ns)

    def found_with(self, queue: QueueName, owner: str, *, now_ns: int) -> None:
        """Note that *owner*, to which *queue* was assigned, has it."""
        if queue not in self._expected:
            self._left[queue] = owner, now_ns + _LEAVE_NS
            self._awaited.discard(queue)

    @property
    def awaits(self) -> bool:
        """True if a queue is left alone for a member that has not taken it yet."""
        return bool(self._awaited)

    def waits(self, queue: QueueName, to: str, *, epoch: int, now_ns: int) -> bool:
        """Return True if *queue*, whose period *epoch* ended for the member *to*, is left alone.

        Only for ``wait_ns`` after this member first saw it.
        """
        seen, since_ns = self._given.get(queue, (epoch, now_ns))
        if seen != epoch:
            since_ns = now_ns
        self._given[queue] = epoch, since_ns
        if now_ns - since_ns >= self._wait_ns:
            return False
        self._wait_for(queue, to, now_ns=now_ns)
        return True

    def share(
        self,
        allocated: Iterable[QueueName],
        *,
        queues: Sequence[QueueName],
        owned: Collection[QueueName],
        members: Collection[str],
        now_ns: int,
    ) -> list[QueueName]:
        """Return the queues that this member tries to own.

        Args:
            allocated: its share by averaging.
            queues: all queues of one topic, rising.
            owned: its queues, of any topic.
            members: the members that count for the topic.
            now_ns: the current time.
        """
        wanted = set(allocated)
        for queue in [each for each in (*self._expected, *self._left) if _is_in(queues, each)]:
            if (until_ns := self._expected.get(queue)) is not None:
                if queue in owned:
                    self._expected[queue] = (
                        now_ns + self._expect_ns
                    )  # to take it again if it is lost
                elif until_ns <= now_ns:
                    del self._expected[queue]
                    continue
                wanted.add(queue)
            elif (left := self._left.get(queue)) is not None:
                to, until_ns = left
                if until_ns <= now_ns or to not in members:
                    self._leave_no_more(queue)
                else:
                    wanted.discard(queue)
        return sorted(wanted)

    def forget(self) -> None:
        """Forget everything, because this member leaves the group."""
        self._expected.clear()
        self._left.clear()
        self._awaited.clear()
        self._given.clear()

    def _wait_for(self, queue: QueueName, to: str, *, now_ns: int) -> None:
        self._left[queue] = to, now_ns + _WAIT_NS
        self._awaited.add(queue)

    def _leave_no_more(self, queue: QueueName) -> None:
        self._left.pop(queue, None)
        self._awaited.discard(queue)


def _is_in(queues: Sequence[QueueName], queue: QueueName) -> bool:
    """Return True if *queue* is in *queues*, by binary search: a topic may have very many."""
    at = bisect_left(queues, queue)
    return at < len(queues) and queues[at] == queue
