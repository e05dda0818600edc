"""Renewal of the orderly locks of all groups of this proxy.

The embedded broker renews all locks of a client by one request. It takes none by that, so the locks
that it does not renew are requested again group by group, as at other brokers. There the groups'
requests are spread over the interval: a thousand at a time would exceed their time limit.

A slow broker delays only its own next renewals.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from broker_core.clock import now_ns
from broker_core.errors import BrokerError, RemotingError
from broker_core.names import Group
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.lock_renewal import lock_names_to_json
from proxy.observe.logs import Confined, NoisyLog
from proxy.upstream.broker_tasks import BrokerTasks
from proxy.upstream.context import UpstreamContext
from proxy.upstream.ownership.owned_queue import OwnedQueue

#: Time after a stop of the process in which input that arrived meanwhile is read.
_RESUME_AFTER_S = 0.5
#: Most locks of a request: names of the greatest length have room.
PART = 2_000
_NOT_TOGETHER = frozenset({ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.NO_PERMISSION})

_noisy = NoisyLog(structlog.get_logger("ownership"))


class GroupLocks(Protocol):
    """The locks of one group."""

    @property
    def group(self) -> Group:
        """The group's name."""

    @property
    def brokers(self) -> Collection[str]:
        """Brokers of queues whose locks may have to be renewed."""

    def renewable(self, broker: str) -> list[OwnedQueue] | None:
        """Return the queues at *broker* whose locks must be renewed; None if they have to be
        renewed by ``renew``.
        """

    async def renew(self, broker: str) -> None:
        """Renew the locks at *broker*, or take them again if no other client has them."""

    def resume(self) -> None:
        """Continue after the process was stopped for longer than its locks are trusted."""


@dataclass(slots=True)
class _AtBroker:
    """The locks renewed together at one broker."""

    together: bool = True
    held: list[OwnedQueue] = field(default_factory=list)
    parts: list[tuple[list[OwnedQueue], bytes]] = field(default_factory=list)  # and encoded


class LockRenewals:
    """Renews the locks of *ownerships*, by group, every ``lock.renewal_s``."""

    def __init__(
        self,
        context: UpstreamContext,
        ownerships: Mapping[Group, GroupLocks],
        *,
        together: bool = True,
    ) -> None:
        """Renew locks with *context*; *together* false: always group by group."""
        self._context = context
        self._together = together
        self._ownerships = ownerships
        self._brokers: defaultdict[str, _AtBroker] = defaultdict(_AtBroker)
        self._by_group: dict[Group, BrokerTasks] = {}

    def broker_lost(self, broker: str) -> None:
        """Note a lost connection: another version may answer at *broker* from now on."""
        self._brokers.pop(broker, None)

    async def run(self) -> None:
        """Renew until cancelled."""
        lock = self._context.settings.lock
        tasks = BrokerTasks("renew locks")
        try:
            while True:
                before_ns = now_ns()
                await asyncio.sleep(lock.renewal_s)
                if now_ns() - before_ns > (lock.renewal_s + lock.trust_s) * 1e9:
                    # Input that arrived meanwhile is read first.
                    asyncio.get_running_loop().call_later(_RESUME_AFTER_S, self._resume)
                for broker, groups in self._held().items():
                    if self._together and self._brokers[broker].together:
                        tasks.start(broker, self._renew_together, broker, groups)
                    else:
                        self._renew_each(broker, groups)
                self._forget_groups()
        finally:
            await tasks.close()
            for by_broker in self._by_group.values():
                await by_broker.close()

    def _held(self) -> dict[str, list[GroupLocks]]:
        """Return the groups with locks, by broker."""
        held: defaultdict[str, list[GroupLocks]] = defaultdict(list)
        for ownership in self._ownerships.values():
            with _confined(ownership):
                for broker in ownership.brokers:
                    held[broker].append(ownership)
        return held

    def _resume(self) -> None:
        for ownership in list(self._ownerships.values()):
            with _confined(ownership):
                ownership.resume()

    # ---- group by group -------------------------------------------------------------------------

    def _renew_each(self, broker: str, groups: Iterable[GroupLocks]) -> None:
        """Start the renewal of each of *groups*, spread over the interval."""
        those = list(groups)
        loop = asyncio.get_running_loop()
        for number, ownership in enumerate(those):
            wait_s = self._context.settings.lock.renewal_s * number / len(those)
            if number:
                loop.call_later(wait_s, self._renew_group, broker, ownership)
            else:
                self._renew_group(broker, ownership)

    def _renew_group(self, broker: str, ownership: GroupLocks) -> None:
        if self._ownerships.get(ownership.group) is not ownership:
            return
        tasks = self._by_group.setdefault(ownership.group, BrokerTasks(f"renew {ownership.group}"))
        tasks.start(broker, ownership.renew, broker)

    def _forget_groups(self) -> None:
        for gone in self._by_group.keys() - self._ownerships.keys():
            if not self._by_group[gone].running:
                del self._by_group[gone]

    # ---- together -------------------------------------------------------------------------------

    async def _renew_together(self, broker: str, groups: Iterable[GroupLocks]) -> None:
        at = self._brokers[broker]
        apart: list[GroupLocks] = []
        held: list[OwnedQueue] = []
        for ownership in groups:
            plain: list[OwnedQueue] | None = None
            with _confined(ownership):
                plain = ownership.renewable(broker)
            if plain is None:
                apart.append(ownership)
            else:
                held += plain
        if not held:
            self._renew_each(broker, apart)
            return
        if held != at.held:
            at.held = held
            at.parts = [_encoded(held[start : start + PART]) for start in range(0, len(held), PART)]
        refused: set[Group] = set()
        for part, encoded in at.parts:
            try:
                refused |= await self._renew_part(broker, part, encoded)
            except BrokerError as error:
                if error.code in _NOT_TOGETHER:
                    at.together = False
                    self._renew_each(broker, groups)
                    return
                self._complain(broker, part, error)
            except RemotingError as error:
                self._complain(broker, part, error)
                break  # the others would wait as long
        self._renew_each(broker, [*apart, *(each for each in groups if each.group in refused)])

    async def _renew_part(
        self, broker: str, part: Iterable[OwnedQueue], encoded: bytes
    ) -> set[Group]:
        """Renew the locks of *part*; return the groups of those that were not renewed."""
        lock = self._context.settings.lock
        asked_ns = now_ns()
        refused = await self._context.client.renew_locks(
            broker, encoded, timeout_s=lock.request_timeout_s
        )
        until_ns = asked_ns + int(lock.trust_s * 1e9)
        for each in part:
            if not refused or each.lock_name not in refused:
                with _noisy.confined("bug", "renewal of a lock not noted", queue=str(each.queue)):
                    each.renewed(until_ns)
        return {group for group, _, _ in refused}

    def _complain(self, broker: str, held: Iterable[OwnedQueue], error: RemotingError) -> None:
        _noisy.warning(
            f"renewal at {broker}",
            "locks not renewed: the broker did not answer; retrying",
            broker=broker,
            queues=len(list(held)),
            reason=str(error),
        )


def _confined(ownership: GroupLocks) -> Confined:
    return _noisy.confined("bug", "locks of a group not renewed", group=ownership.group)


def _encoded(part: list[OwnedQueue]) -> tuple[list[OwnedQueue], bytes]:
    names = ((each.group, each.queue.topic, each.queue.queue_id) for each in part)
    return part, lock_names_to_json(names)
