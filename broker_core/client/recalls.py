"""Recalls of delayed messages, as brokers of RocketMQ 5.3 and the embedded one serve them."""

from __future__ import annotations

from broker_core.client.requests import BrokerRequests
from broker_core.names import Group, Topic
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.retry_headers import RecallMessageHeader, RecallMessageResponse


class Recalls:
    """Asks brokers not to deliver what waits there."""

    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests

    async def recall(
        self,
        broker: str,
        topic: Topic,
        handle: str,
        *,
        group: Group,
        timeout_s: float | None = None,
    ) -> str:
        """Recall the message of a receipt's *handle*; return its id.

        Raises BrokerError: 604 if the message does not wait there (any more), 3 from a broker that
        knows no recalls.
        """
        header = RecallMessageHeader(producer_group=group, topic=topic, recall_handle=handle)
        answer = await self._requests.ask(
            broker, RequestCode.RECALL_MESSAGE, header.to_ext(), timeout_s=timeout_s
        )
        return RecallMessageResponse.from_ext(answer.ext).msg_id
