"""Which queues of a group one of its members tries to own, where people gave some to members that
they named. Pure.

Who owns a queue is decided by its lock and by its epoch; this only says who asks for the lock. A
member that was named asks for it for a while, and keeps what it got for as long as it owns it. The
others leave a queue alone while the member that it was given to is there and owns it, or may still
come for it; then shares are as ever. Times are ns.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence

from broker_core.names import QueueName

#: A queue that was left alone is tried again after so long: its owner may have lost it.
_LEAVE_NS = 5_000_000_000
#: The same of one that nobody has taken yet.
_WAIT_NS = 1_000_000_000


class Handoffs:
    """What one member knows of queues that were given by name."""

    def __init__(self, *, expect_ns: int, wait_ns: int) -> None:
        """Who was named asks for the queue for *expect_ns*, which begins before the owner hands it
        over; once that is done the others wait *wait_ns* for it, if it is a member still.
        """
        self._expect_ns = expect_ns
        self._wait_ns = wait_ns
        self._expected: dict[QueueName, int] = {}  # until when, unless it is owned
        self._left: dict[QueueName, tuple[str, int]] = {}  # to whom, until when
        self._awaited: set[QueueName] = set()  # of those: nobody has it yet, for all we know
        self._given: dict[QueueName, tuple[int, int]] = {}  # epoch that ended so, seen when

    def expect(self, queue: QueueName, *, now_ns: int) -> None:
        """*queue* is given to this member."""
        self._leave_no_more(queue)
        self._expected[queue] = now_ns + self._expect_ns

    def expect_none(self, queues: Sequence[QueueName]) -> None:
        """None of *queues*, all of a topic, which rise, is for this member: it wants none."""
        for queue in [each for each in self._expected if _is_in(queues, each)]:
            del self._expected[queue]

    def expects(self, queue: QueueName) -> bool:
        """True if *queue* was given to this member, which waits for it or has it."""
        return queue in self._expected

    def give(self, queue: QueueName, to: str, *, now_ns: int) -> None:
        """*queue* is handed to *to* by this member, or was."""
        self._expected.pop(queue, None)
        self._wait_for(queue, to, now_ns=now_ns)

    def found_with(self, queue: QueueName, owner: str, *, now_ns: int) -> None:
        """*owner*, to whom *queue* was given, has it."""
        if queue not in self._expected:
            self._left[queue] = owner, now_ns + _LEAVE_NS
            self._awaited.discard(queue)

    @property
    def awaits(self) -> bool:
        """True if some queue is left alone until somebody comes for it."""
        return bool(self._awaited)

    def waits(self, queue: QueueName, to: str, *, epoch: int, now_ns: int) -> bool:
        """The period *epoch* of *queue* ended for *to*, which is a member: is it to be left alone?

        Only for ``wait_ns`` from the first time that this member saw it so.
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
        """What this member tries to own of *queues*, all of a topic, which rise, if *allocated* is
        its share by averaging, and it owns *owned* (of any topic).
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
        """The group is left by this member."""
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
    """Found by halving: a topic may have very many, and few of them were given by name."""
    at = bisect_left(queues, queue)
    return at < len(queues) and queues[at] == queue
