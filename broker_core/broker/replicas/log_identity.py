"""Identity of a broker's log: its id, and its epoch, which counts masters. Pure.

Slaves have the log of their master: the same id. Each promotion of a slave increases the epoch, so
that slaves of the new master refuse an old master that is started as one again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

Role = Literal["master", "slave"]


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """``log_id`` is None for a slave without messages. ``role`` is that of the last start.

    ``lock_grace``: orderly locks granted by another master may be alive.
    """

    log_id: str | None = None
    epoch: int = 0
    role: Role | None = None
    lock_grace: bool = False

    @classmethod
    def from_table(cls, content: dict[str, Any]) -> LogIdentity:
        """Read the table; raise ValueError on other content."""
        if not content:
            return cls()
        log_id, epoch, role = content.get("logId"), content.get("epoch"), content.get("role")
        if not (
            (log_id is None or isinstance(log_id, str))
            and isinstance(epoch, int)
            and role in ("master", "slave")
        ):
            raise ValueError("not a table of a replica: expected logId, epoch and role")
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
        """Return the identity after a start in *role*; *fresh_id* is for a log without an id."""
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

    def elected(self, epoch: int, *, fresh_id: str) -> LogIdentity:
        """Return the identity of the master that was elected for *epoch*."""
        return LogIdentity(self.log_id or fresh_id, epoch, "master", lock_grace=True)

    def why_not(self, log_id: str | None, epoch: int) -> str | None:
        """Return why a slave with *log_id* and *epoch* must not copy this master's log, or None."""
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
