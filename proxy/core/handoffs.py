"""Which queues of a group one of its members tries to own, where people gave some to members that
they named. Pure.

Who owns a queue is decided by its lock and by its epoch; this only says who asks for the lock. A
member that was named asks for ``WITHIN_NS``, and keeps what it got for as long as it owns it. The
others leave a queue alone while the member that it was given to is there and owns it, or may still
come for it; then shares are as ever. Times are ns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from broker_core.names import QueueName

#: For so long a queue that was given away waits for the member that was named.
WITHIN_NS = 30_000_000_000
#: A queue that was left alone is tried again after so long: its owner may have lost it.
_LEAVE_NS = 5_000_000_000
#: The same of one that nobody has taken yet.
_WAIT_NS = 1_000_000_000


class Handoffs:
    """What one member knows of queues that were given by name."""

    def __init__(self) -> None:
        self._expected: dict[QueueName, int] = {}  # until when, unless it is owned
        self._left: dict[QueueName, tuple[str, int]] = {}  # to whom, until when
        self._given: dict[QueueName, tuple[int, int]] = {}  # epoch that ended so, seen when

    def expect(self, queue: QueueName, *, now_ns: int) -> None:
        """*queue* is given to this member."""
        self._left.pop(queue, None)
        self._expected[queue] = now_ns + WITHIN_NS

    def expects(self, queue: QueueName) -> bool:
        """True if *queue* was given to this member, which waits for it or has it."""
        return queue in self._expected

    def give(self, queue: QueueName, to: str, *, now_ns: int) -> None:
        """*queue* is handed to *to* by this member, or was."""
        self._expected.pop(queue, None)
        self._left[queue] = to, now_ns + _WAIT_NS

    def found_with(self, queue: QueueName, owner: str, *, now_ns: int) -> None:
        """*owner*, to whom *queue* was given, has it."""
        if queue not in self._expected:
            self._left[queue] = owner, now_ns + _LEAVE_NS

    def waits(self, queue: QueueName, to: str, *, epoch: int, now_ns: int) -> bool:
        """The period *epoch* of *queue* ended for *to*, which is a member: is it to be left alone?

        Only for ``WITHIN_NS`` from the first time that this member saw it so.
        """
        seen, since_ns = self._given.get(queue, (epoch, now_ns))
        if seen != epoch:
            since_ns = now_ns
        self._given[queue] = epoch, since_ns
        if now_ns - since_ns >= WITHIN_NS:
            return False
        self._left[queue] = to, now_ns + _WAIT_NS
        return True

    def share(
        self,
        allocated: Iterable[QueueName],
        *,
        queues: Collection[QueueName],
        owned: Collection[QueueName],
        members: Collection[str],
        now_ns: int,
    ) -> list[QueueName]:
        """What this member tries to own of *queues*, all of a topic, if *allocated* is its share by
        averaging, and it owns *owned* (of any topic).
        """
        wanted = set(allocated)
        for queue in queues:
            if (until_ns := self._expected.get(queue)) is not None:
                if queue in owned:
                    self._expected[queue] = now_ns + WITHIN_NS  # to take it again if it is lost
                elif until_ns <= now_ns:
                    del self._expected[queue]
                    continue
                wanted.add(queue)
            elif (left := self._left.get(queue)) is not None:
                to, until_ns = left
                if until_ns <= now_ns or to not in members:
                    del self._left[queue]
                else:
                    wanted.discard(queue)
        return sorted(wanted)

    def forget(self) -> None:
        """The group is left by this member."""
        self._expected.clear()
        self._left.clear()
        self._given.clear()
