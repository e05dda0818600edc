"""Periodic questions to producers about undecided transactions: code 39."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress

import structlog

from broker_core.broker.groups.producers import Producers
from broker_core.broker.transactions.coordinator import TransactionCoordinator
from broker_core.broker.transactions.records import check_body
from broker_core.clock import now_ns, wall_ms
from broker_core.errors import BrokerError, ConnectionLost
from broker_core.names import Group
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.message import UNIQ_KEY, StoredMessage
from broker_core.remoting.transaction_headers import CheckTransactionHeader
from broker_core.remoting_channel import RemotingChannel
from broker_core.tasks import cancel_and_wait, spawn

#: So that a request never has much unread backlog to read.
_READ_EVERY_S = 0.5

_log = structlog.get_logger("broker")


class TransactionCheck:
    """Checks every *interval_s*, each time with another producer of the group."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        producers: Producers[RemotingChannel],
        *,
        interval_s: float,
        broker_name: str,
    ) -> None:
        self._coordinator = coordinator
        self._producers = producers
        self._interval_s = interval_s
        self._broker_name = broker_name
        self._turn = itertools.count()
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start; the first check comes after one interval, when producers had time to connect."""
        self._running = spawn(self._run(), name="check transactions")

    async def close(self) -> None:
        """Stop; the next start repeats an unfinished check."""
        await cancel_and_wait(self._running)
        if self._running is not None:
            self._coordinator.note_progress()

    async def _run(self) -> None:
        next_ns = now_ns() + int(self._interval_s * 1e9)
        while True:
            await asyncio.sleep(min(_READ_EVERY_S, max(0, (next_ns - now_ns()) / 1e9)))
            try:
                if now_ns() >= next_ns:
                    next_ns = now_ns() + int(self._interval_s * 1e9)
                    await self._coordinator.check(wall_ms(), self._ask)
                await self._coordinator.keep_up()
                self._coordinator.note_progress()
            except Exception as error:
                _log.error(
                    "transactions not checked, trying again",
                    reason=str(error),
                    exc_info=None if isinstance(error, OSError | BrokerError) else error,
                )

    def _ask(self, group: str, half: StoredMessage) -> bool:
        """Ask one producer of *group*, not the same one each time."""
        channels = [
            channel for channel in self._producers.connections(Group(group)) if channel.is_ready
        ]
        if not channels:
            return False
        unique = half.properties.get(UNIQ_KEY)
        header = CheckTransactionHeader(
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.physical_offset,
            msg_id=unique,
            transaction_id=unique,
            offset_msg_id=half.offset_message_id,
            topic=half.properties.get("REAL_TOPIC"),
            bname=self._broker_name,
        )
        with suppress(ConnectionLost):
            channels[next(self._turn) % len(channels)].send_oneway(
                RemotingCommand(
                    RequestCode.CHECK_TRANSACTION_STATE,
                    ext=header.to_ext(),
                    body=check_body(half),
                )
            )
            return True
        return False
