"""Operations on queue ownership: list owners, drain this proxy, resume it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from broker_core.clock import now_ns
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName, Topic
from proxy.core.access.audit_record import Change
from proxy.errors import UnknownName, WrongState
from proxy.lane.lanes import Lanes
from proxy.upstream.broker_questions import BrokerQuestions
from proxy.upstream.context import UpstreamContext
from proxy.upstream.ownership.group_ownership import GroupOwnership
from proxy.upstream.ownership.owner_book import OwnerBook, OwnerRow

_log = structlog.get_logger("ownership")

_LOOK_AGAIN_S = 0.05
#: Beyond ``ownership.drain_s``, for commits and records.
_SLACK_S = 5.0


@dataclass(frozen=True, slots=True)
class Doors:
    """Controls client access: refuse new clients, disconnect all, accept clients again."""

    shut: Callable[[], None]
    clear: Callable[[], Awaitable[None]]
    open: Callable[[], Awaitable[None]]


class OwnerDesk:
    """Operations on queue ownership.

    A drained proxy keeps running without queues and clients until it is resumed or restarted.
    """

    def __init__(
        self,
        context: UpstreamContext,
        lanes: Lanes,
        ownerships: Mapping[Group, GroupOwnership],
        book: OwnerBook,
        doors: Doors,
    ) -> None:
        self._context = context
        self._lanes = lanes
        self._ownerships = ownerships
        self._book = book
        self._doors = doors
        self._turn = asyncio.Lock()  # of operators who drain or resume

    async def rows(self, group: str | None) -> dict[str, Any]:
        """Return the queues of this proxy's groups (or of *group*) with their owners. Those of
        brokers that do not answer, which ``unanswered`` names, are in the state ``unknown``.

        Raises UnknownName.
        """
        lanes = list(self._lanes) if group is None else [self._lanes.named(group)]
        ask = BrokerQuestions()
        rows = []
        for lane in lanes:
            for topic in lane.settings.topics:
                rows += await self._of_topic(ask, lane.name, Topic(topic.name))
        return {**self._state(), "queues": rows, "unanswered": ask.unanswered}

    async def _of_topic(
        self, ask: BrokerQuestions, group: Group, topic: Topic
    ) -> list[dict[str, Any]]:
        try:
            queues = await self._book.queues(group, topic)
        except UnknownName:
            return []  # the topic does not exist yet
        except RemotingError as error:
            ask.note(f"the brokers of {topic}", error)
            return []
        known = {row.queue: row for row in await self._book.known_rows(ask, group, queues)}
        return [
            _view(group, known[queue]) if queue in known else _unknown(group, queue)
            for queue in queues
        ]

    async def drain(self, *, by: str, reason: str) -> dict[str, Any]:
        """Hand all queues over to other proxies and refuse clients.

        Returns once this is done, or after ``ownership.drain_s`` with the queues left. Raises
        WrongState.
        """
        async with self._turn:
            away = self._context.away
            if away:
                raise WrongState(f"this proxy is already drained: {away}")
            change = self._change("owners drain", "drained", by, reason)
            async with self._context.audit.change(change):
                self._context.step_aside(reason)
            self._doors.shut()
            self._wake()
        deadline_ns = now_ns() + int((self._drain_s + _SLACK_S) * 1e9)
        while self._left and self._context.away and now_ns() < deadline_ns:
            await self._context.settled.wait(_LOOK_AGAIN_S)
        async with self._turn:
            if self._context.away and not self._left:
                await self._doors.clear()
        _log.warning("drained by an operator", by=by, reason=reason, queues_left=self._left)
        return self._state()

    async def resume(self, *, by: str, reason: str) -> dict[str, Any]:
        """Serve clients and own queues again. Raises WrongState, OSError if its port is taken."""
        async with self._turn:
            if not self._context.away:
                raise WrongState("this proxy is not drained")
            change = self._change("owners resume", "serving", by, reason)
            async with self._context.audit.change(change):
                await self._doors.open()
                self._context.take_part()
        self._wake()
        return self._state()

    @property
    def _drain_s(self) -> float:
        return self._context.settings.ownership.drain_s

    @property
    def _left(self) -> int:
        return sum(ownership.held for ownership in self._ownerships.values())

    def _wake(self) -> None:
        for ownership in self._ownerships.values():
            ownership.wake()

    def _state(self) -> dict[str, Any]:
        away, left = self._context.away, self._left
        return {
            "proxy": self._context.client.client_id,
            "http": self._context.http,
            "state": ("draining" if left else "drained") if away else "serving",
            "reason": away,
            "owned": left,
        }

    def _change(self, verb: str, after: str, by: str, reason: str) -> Change:
        return Change(
            actor=by,
            verb=verb,
            group="",
            reason=reason,
            target=self._context.client.client_id,
            before={"state": self._state()["state"]},
            after={"state": after},
        )


def _unknown(group: Group, queue: QueueName) -> dict[str, Any]:
    row = _view(group, OwnerRow(queue, None, member=False))
    return {**row, "state": "unknown"}


def _view(group: Group, row: OwnerRow) -> dict[str, Any]:
    own = None if row.last is None else row.last.own
    return {
        "group": group,
        "topic": row.queue.topic,
        "queue": row.queue.qid,
        "state": row.state,
        "owner": own.owner if own is not None and row.state != "free" else None,
        "http": (own.http or None) if own is not None and row.state != "free" else None,
        "epoch": None if row.last is None else row.last.epoch,
        "since_ms": row.since_ms,
    }
