"""Bugs in resets of offsets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from broker_core.clock import now_ns
from broker_core.names import Group, QueueName
from proxy.core.records.record import Own, Snapshot
from proxy.operator.offset_desk import QueueReset
from proxy.upstream.context import UpstreamContext
from proxy.upstream.ownership import owned_queue, resets
from proxy.upstream.ownership.owner_book import OwnerBook
from proxy.upstream.ownership.resets import FreeReset, Place
from proxy.upstream.records import recorder
from tests.mutants.mutant import Mutant, all_of, method_of, stand_in
from tests.mutants.scenarios import moved


class _AnyPlace(QueueReset):
    """Does not compare the expected place."""

    def plan(self, place: Place) -> dict[str, Any]:
        wish, self._wish = self._wish, replace(self._wish, expect=None)
        try:
            return super().plan(place)
        finally:
            self._wish = wish


async def _offset_alone(
    _original: Any,
    context: UpstreamContext,
    group: Group,
    queue: QueueName,
    to: Snapshot,
    _own: Own,
) -> bool:
    await context.client.commit_offset(group, queue, to.base, epoch=to.epoch)
    return True


async def _nowhere(*_: Any) -> None:
    """Report no other proxy as its owner."""


@asynccontextmanager
async def _without_lock(_original: Any, _reset: FreeReset) -> AsyncIterator[int]:
    yield now_ns() + 5_000_000_000


RESET_MUTANTS = (
    Mutant("R5", "a reset ignores the expected place",
           stand_in(_AnyPlace), moved),
    Mutant("R4", "a reset forgets paused keys",
           method_of(owned_queue, "moved_to",
                     lambda original, *asked: replace(original(*asked), paused={})), moved),
    Mutant("R3", "a reset forgets parked keys",
           method_of(owned_queue, "moved_to",
                     lambda original, *asked: replace(original(*asked), parked={})), moved),
    Mutant("D1", "a reset commits its offset without a record",
           all_of(method_of(owned_queue, "store_reset", _offset_alone),
                  method_of(resets, "store_reset", _offset_alone)), moved),
    # The owner notices by a foreign record between its own, so this check must be off as well.
    Mutant("W2", "a queue is moved by any proxy, without its lock",
           all_of(method_of(OwnerBook, "refuse_elsewhere", _nowhere),
                  method_of(FreeReset, "_locked", _without_lock),
                  method_of(recorder, "later_owner", lambda *_, **__: None)), moved),
)  # fmt: skip
