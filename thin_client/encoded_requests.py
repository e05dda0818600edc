"""Decides which batches of a producer go encoded, by ``sendEncoded``, and to which queue. Pure.

1. A batch is divided by queue. The messages of a queue stay in their order, and those of a key are
   in one queue: that which the proxy would choose. A proxy that knows other queues refuses them.
2. Messages of a queue go as messages if one of them cannot be encoded, as do all batches that are
   small, whose topic's queues are unknown, or whose proxy is of an earlier version.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from thin_client import calls
from thin_client.delivery import TRY_NS, Delivery
from thin_client.encoded_message import encoded
from thin_client.errors import ClientError, ProxyFault
from thrift_idl import producer

#: Seconds for which a producer uses the queues of a topic, as RocketMQ's producers do: it may get
#: more of them.
ROUTE_S = 30.0
#: Nanoseconds after which a producer asks again for queues that it was not told.
_ASK_AGAIN_NS = 3_000_000_000
#: The least number of messages in a request on average: fewer go together, as messages.
LEAST_ENCODED = 16
#: From this number of topics on, old routes are forgotten at each answer.
_MOST_ROUTES = 1000
#: The most messages in a request that a proxy accepts.
_MOST_ENCODED = 10_000


def route_number(qids: Sequence[str]) -> int:
    """Return the number that identifies a topic's queues; see ``EncodedBatch.route``."""
    return zlib.crc32(",".join(qids).encode())


@dataclass(frozen=True, slots=True)
class _Route:
    """The queues of a topic in the order of their numbers, none if they are unknown."""

    qids: tuple[str, ...]
    until_ns: int


@dataclass(slots=True)
class EncodedRequests:
    """Knowledge of a producer about proxies and topics. One thread at a time."""

    _routes: dict[str, _Route] = field(default_factory=dict)
    _is_missing: bool = False  # a proxy does not have the method

    def topics_to_ask(self, request: Delivery, now_ns: int) -> list[str]:
        """Return the topics whose queues must be asked for before *request* can be divided."""
        if not self._goes_encoded(request):
            return []
        topics = dict.fromkeys(each.topic or "" for each in request.messages)
        if len(request.messages) < LEAST_ENCODED * len(topics):
            return []
        return [topic for topic in topics if not self._is_known(topic, now_ns)]

    def question(
        self, topic: str, request: Delivery, now_ns: int
    ) -> tuple[calls.Call[producer.WritableQueues], float]:
        """Return the call that asks for the queues of *topic*, and its time-out in seconds."""
        token = getattr(request.messages[0], "token", None)
        asked = producer.QueuesRequest(topic=topic, token=token)
        try_ns = max(min(request.deadline_ns - now_ns, TRY_NS), 1_000_000)
        return calls.writable_queues(asked), try_ns / 1e9

    def told(self, topic: str, answer: producer.WritableQueues, now_ns: int) -> None:
        """Take note of the answer to a question."""
        qids = tuple(answer.qids or ()) if answer.code == 0 else ()
        for_ns = int(ROUTE_S * 1e9) if qids else _ASK_AGAIN_NS
        self._keep(topic, _Route(qids, now_ns + for_ns), now_ns)

    def not_told(self, topic: str, error: ClientError, now_ns: int) -> None:
        """Take note of a question without an answer."""
        self.failed(error)
        self._keep(topic, _Route((), now_ns + _ASK_AGAIN_NS), now_ns)

    def failed(self, error: ClientError) -> None:
        """Take note of the error of a question or of an encoded request."""
        self._is_missing |= isinstance(error, ProxyFault) and error.unknown_method

    def refused(self, request: Delivery) -> None:
        """Take note that an encoded *request* was refused: its topic may have other queues now."""
        self._routes.pop(request.messages[0].topic or "", None)

    def divided(self, request: Delivery) -> list[Delivery]:
        """Return the requests to send instead of *request*, in order: it alone, or encoded ones."""
        if not self._goes_encoded(request):
            return [request]
        places: dict[tuple[str, str | None] | None, list[int]] = {}
        for index, message in enumerate(request.messages):
            assert isinstance(message, producer.Message)
            places.setdefault(self._place(message), []).append(index)
        if places.keys() == {None} or len(request.messages) < LEAST_ENCODED * len(places):
            return [request]
        found: list[Delivery] = []
        for place, indexes in places.items():
            found += self._requests(request, place, indexes)
        return found

    def _keep(self, topic: str, route: _Route, now_ns: int) -> None:
        if len(self._routes) >= _MOST_ROUTES:
            self._routes = {
                name: each for name, each in self._routes.items() if now_ns < each.until_ns
            }
        self._routes[topic] = route

    def _goes_encoded(self, request: Delivery) -> bool:
        return (
            request.may_be_encoded
            and len(request.messages) >= LEAST_ENCODED
            and not self._is_missing
        )

    def _is_known(self, topic: str, now_ns: int) -> bool:
        route = self._routes.get(topic)
        return route is not None and now_ns < route.until_ns

    def _place(self, message: producer.Message) -> tuple[str, str | None] | None:
        """Return topic and queue of *message*, without a queue for any; None: the proxy decides."""
        topic = message.topic or ""
        route = self._routes.get(topic)
        qids = () if route is None else route.qids
        if not qids:
            return None
        if message.qid is not None:
            return topic, message.qid
        if message.partitionId >= 0:
            number = message.partitionId
            return (topic, qids[number]) if number < len(qids) else None
        if message.partitionId == -1 and message.hashId is not None:
            return topic, qids[abs(message.hashId) % len(qids)]
        return topic, None

    def _requests(
        self, whole: Delivery, place: tuple[str, str | None] | None, indexes: list[int]
    ) -> list[Delivery]:
        if place is None:
            return [whole.part(indexes)]
        topic, qid = place
        most, qids, route = _MOST_ENCODED, self._routes[topic].qids, None
        if qid is not None:
            route = route_number(qids)
        else:  # messages without a key are spread over the queues
            most = min(most, max(LEAST_ENCODED, -(-len(indexes) // len(qids))))
        found: list[Delivery] = []
        for begin in range(0, len(indexes), most):
            some = indexes[begin : begin + most]
            entries: list[bytes] = []
            for index in some:
                message = whole.messages[index]
                assert isinstance(message, producer.Message)
                entry = encoded(message)
                if entry is None:
                    return [whole.part(indexes)]
                entries.append(entry)
            found.append(whole.part(some, entries=entries, qid=qid, route=route))
        return found
