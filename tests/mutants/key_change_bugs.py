"""Bugs in changes of the order key."""

from __future__ import annotations

from typing import Any

from proxy.core.jobs.key_change import KeyChange
from tests.mutants.mutant import Mutant, method_of
from tests.mutants.scenarios import rekeyed


def _counts_below(original: Any, change: KeyChange, message: Any) -> None:
    """What the owner before had not finished is counted by no next one."""
    change._keys[message.queue_offset] = None


KEY_CHANGE_MUTANTS = (
    Mutant("O5", "what is newer waits for nothing older",
           method_of(KeyChange, "waits", lambda *_: False), rekeyed),
    Mutant("O5", "the owner after a crash counts none of what is unfinished",
           method_of(KeyChange, "read", _counts_below), rekeyed),
)  # fmt: skip
