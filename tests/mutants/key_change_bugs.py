"""Bugs in changes of the order key."""

from __future__ import annotations

from broker_core.remoting.message import StoredMessage
from proxy.core.jobs.key_change import KeyChange
from tests.mutants.mutant import Mutant, method_of, stand_in
from tests.mutants.scenarios import rekeyed


class _CountsNone(KeyChange):
    """Counts none of the messages that the owner before had not finished."""

    def read(self, message: StoredMessage) -> None:
        self._keys[message.queue_offset] = None


KEY_CHANGE_MUTANTS = (
    Mutant("O5", "newer messages do not wait for older ones",
           method_of(KeyChange, "waits", lambda *_: False), rekeyed),
    Mutant("O5", "the owner after a crash counts no unfinished messages",
           stand_in(_CountsNone), rekeyed),
)  # fmt: skip
