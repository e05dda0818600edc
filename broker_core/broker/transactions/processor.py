"""Requests to end a transaction: code 37."""

from __future__ import annotations

from collections.abc import Callable

from broker_core.access.file import CallerRights
from broker_core.access.needs import sending_needs
from broker_core.broker.store_answers import ANSWERS
from broker_core.broker.transactions.coordinator import TransactionCoordinator
from broker_core.errors import BrokerError
from broker_core.names import Topic
from broker_core.rare_warnings import RareWarnings
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.transaction_headers import EndTransactionHeader
from broker_core.remoting_channel import Answer, Handler, RemotingChannel


class TransactionProcessor:
    """Answers when the decision is as durable as the broker's ``flush`` promises."""

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        *,
        rights_of: Callable[[RemotingCommand, RemotingChannel], CallerRights | None],
    ) -> None:
        """*rights_of* returns the rights of a request's account, None if it may do everything."""
        self._coordinator = coordinator
        self._rights_of = rights_of
        self._warnings = RareWarnings("broker")

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {RequestCode.END_TRANSACTION: self._end}

    async def _end(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        rights = self._rights_of(request, channel)

        def check_topic(topic: Topic) -> None:
            # The request names positions, and a topic that need not be the message's.
            if rights is not None:
                rights.check(sending_needs(topic))

        header = EndTransactionHeader.from_ext(request.ext)
        try:
            kept = await self._coordinator.end(header, check_topic=check_topic)
        except BrokerError as error:
            if request.is_oneway:  # Java's producers get no answer
                self._warnings.warn(
                    "decision of a transaction refused", peer=channel.peer, why=error.remark
                )
            raise
        return request.response(*ANSWERS[kept])
