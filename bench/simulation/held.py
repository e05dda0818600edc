"""One queue at one proxy, from the grant of its lock to its end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from broker_core.names import QueueName
from proxy.core.ownership.trust import Trust

#: As ``proxy.upstream.ownership.owned_queue.QueueState``.
State = Enum("State", "ACQUIRING OWNED HANDING_OVER UNLOCKING GONE")


@dataclass(slots=True, eq=False)
class Held:
    """*checking*: the records are being looked at, after the lock was in doubt."""

    queue: QueueName
    trust: Trust
    state: State = State.ACQUIRING
    epoch: int = -1
    hold_until_ns: int = 0
    checking: bool = False

    @property
    def is_sure(self) -> bool:
        """It is owned, and nothing makes doubt of it."""
        return self.state is State.OWNED and not self.trust.doubtful and not self.checking
