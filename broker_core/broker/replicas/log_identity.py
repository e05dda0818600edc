"""Which log a broker holds, and under how many masters it was written. Pure.

Slaves hold the log of their master: the same id. Each promotion of a slave raises the epoch: so the
old master, should it be started as one again, is known for an old one by all who know the new.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

Role = Literal["master", "slave"]


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """``log_id`` is None of a slave that holds nothing yet. ``role`` is the one of the last start;
    ``lock_grace`` says that orderly locks given by another master may be alive.
    """

    log_id: str | None = None
    epoch: int = 0
    role: Role | None = None
    lock_grace: bool = False

    @classmethod
    def from_table(cls, content: dict[str, Any]) -> LogIdentity:
        """Read the table; raises ValueError on other content."""
        if not content:
            return cls()
        log_id, epoch, role = content.get("logId"), content.get("epoch"), content.get("role")
        if not (
            (log_id is None or isinstance(log_id, str))
            and isinstance(epoch, int)
            and role in ("master", "slave")
        ):
            raise ValueError("no table of a replica: expected logId, epoch and role")
        return cls(log_id, epoch, role, bool(content.get("lockGrace")))

    def to_table(self) -> dict[str, Any]:
        """Inverse of ``from_table``."""
        return {
            "logId": self.log_id,
            "epoch": self.epoch,
            "role": self.role,
            "lockGrace": self.lock_grace,
        }

    def started(self, role: Role, *, fresh_id: str) -> LogIdentity:
        """What it is once the broker starts in *role*; *fresh_id* is for a log that has none."""
        if role == "slave":
            return replace(self, role="slave", lock_grace=False)
        if self.role == "slave":
            return replace(
                self,
                log_id=self.log_id or fresh_id,
                epoch=self.epoch + 1,
                role="master",
                lock_grace=True,
            )
        return replace(
            self, log_id=self.log_id or fresh_id, epoch=max(1, self.epoch), role="master"
        )

    def why_not(self, log_id: str | None, epoch: int) -> str | None:
        """Why a slave that holds *log_id* and knows *epoch* must not copy this master's log."""
        if log_id is not None and log_id != self.log_id:
            return (
                f"the slave holds log {log_id}, this master writes log {self.log_id}: give the"
                " slave an empty data folder, or its own master"
            )
        if epoch > self.epoch:
            return (
                f"the slave knows a master of epoch {epoch}, this one is of epoch {self.epoch}:"
                " another broker was promoted since; start this one as a slave"
            )
        return None
