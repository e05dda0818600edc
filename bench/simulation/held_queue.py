"""One queue at one proxy, from the grant of its lock to its end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from broker_core.names import QueueName
from proxy.core.ownership.trust import Trust

#: As ``proxy.upstream.ownership.owned_queue.QueueState``.
State = Enum("State", "ACQUIRING OWNED HANDING_OVER UNLOCKING GONE")


@dataclass(slots=True, eq=False)
class HeldQueue:
    """A held queue.

    *checking*: its records are being read after a doubtful lock; *hold_until_ns*: no deliveries
    before.
    """

    queue: QueueName
    trust: Trust
    state: State = State.ACQUIRING
    epoch: int = -1
    hold_until_ns: int = 0
    checking: bool = False

    def hold_until(self, at_ns: int) -> None:
        """Deliver nothing before *at_ns*."""
        self.hold_until_ns = at_ns

    def own(self, epoch: int) -> None:
        """Become owned, by a record of *epoch*."""
        self.epoch, self.state = epoch, State.OWNED

    def begin_hand_over(self) -> None:
        """Finish leased messages before giving the queue back."""
        self.state = State.HANDING_OVER

    def begin_unlock(self) -> None:
        """Ask the broker to free the lock."""
        self.state = State.UNLOCKING

    def end(self) -> None:
        """Give the queue up."""
        self.state = State.GONE

    def begin_check(self) -> None:
        """Start reading the records."""
        self.checking = True

    def end_check(self) -> None:
        """End reading the records."""
        self.checking = False

    @property
    def is_sure(self) -> bool:
        """Whether it is owned without doubt."""
        return self.state is State.OWNED and not self.trust.doubtful and not self.checking
