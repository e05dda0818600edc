"""Delayed messages at a broker: 4.9 has levels, 5.x delivery times as well, 5.3 recalls."""

from __future__ import annotations

from broker_core.client.requests import BrokerRequests
from broker_core.clock import now_ns
from broker_core.names import Group, Topic
from broker_core.remoting.bodies import table_from_json
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.retry_headers import RecallMessageHeader, RecallMessageResponse

_VERSION_5 = 413
_COUNTS_NS = 60_000_000_000


class Delays:
    """Requests to brokers about delayed messages."""

    def __init__(self, requests: BrokerRequests) -> None:
        self._requests = requests
        self._takes_times: dict[str, tuple[int, bool]] = {}

    async def takes_times(self, broker: str, *, timeout_s: float | None = None) -> bool:
        """Return whether *broker* supports delivery times; its answer is cached for a minute."""
        asked_ns, takes = self._takes_times.get(broker, (0, False))
        if not asked_ns or now_ns() - asked_ns > _COUNTS_NS:
            answer = await self._requests.ask(
                broker, RequestCode.GET_BROKER_RUNTIME_INFO, timeout_s=timeout_s
            )
            about = table_from_json(answer.body)
            version = about.get("brokerVersion", "")
            takes = about.get("brokerVersionDesc") == "orderlane" or (
                version.isdecimal() and int(version) >= _VERSION_5
            )
            self._takes_times[broker] = now_ns(), takes
        return takes

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

        Raises BrokerError: 604 if the message does not wait there (any more), 3 if the broker does
        not support recalls.
        """
        header = RecallMessageHeader(producer_group=group, topic=topic, recall_handle=handle)
        answer = await self._requests.ask(
            broker, RequestCode.RECALL_MESSAGE, header.to_ext(), timeout_s=timeout_s
        )
        return RecallMessageResponse.from_ext(answer.ext).msg_id
