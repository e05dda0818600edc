"""The end of a transaction: code 37."""

from __future__ import annotations

from broker_core.broker.transaction_desk import TransactionDesk
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.transaction_headers import EndTransactionHeader
from broker_core.remoting_channel import Answer, Handler, RemotingChannel


class TransactionProcessor:
    """Answers when the decision is as durable as the broker's ``flush`` promises."""

    def __init__(self, desk: TransactionDesk) -> None:
        self._desk = desk

    def handlers(self) -> dict[int, Handler]:
        """Request codes served."""
        return {RequestCode.END_TRANSACTION: self._end}

    async def _end(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        await self._desk.end(EndTransactionHeader.from_ext(request.ext), peer=channel.peer)
        return request.response()
