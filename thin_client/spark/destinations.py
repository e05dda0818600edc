"""Whether rows can be sent to a topic, asked before a job writes its first row; and its queues."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import closing

from thin_client import calls
from thin_client.backoff import backoff_ns
from thin_client.encoded_requests import ROUTE_S
from thin_client.errors import ProxyFault
from thin_client.spark.option_values import OptionError
from thin_client.spark.options import Connecting
from thin_client.spark.proxy_calls import PATIENCE_S, ProxyCalls
from thin_client.spark.queue_numbers import check_one_broker, number_of
from thin_client.spark.server_order import KnownFailures
from thrift_idl import producer

#: Codes of refusals that do not pass by themselves: illegal name, no such topic, no token or right.
_FINAL = frozenset({11, 14, 71})


class NumberedQueues:
    """The queues of topics by number; *ask* returns the names of a topic's queues."""

    def __init__(self, ask: Callable[[str], Sequence[str]]) -> None:
        self._ask = ask
        self._topics: dict[str, dict[str, str]] = {}

    def qid(self, topic: str, number: int) -> str | None:
        """Return the name of a queue; None if there is none of this number.

        Raises OptionError for a topic with queues at several brokers.
        """
        if topic not in self._topics:
            qids = self._ask(topic)
            instead = "name the queues in the column qid"
            check_one_broker("the column partition", topic, qids, instead=instead)
            self._topics[topic] = {number_of(qid): qid for qid in qids}
        return self._topics[topic].get(str(number))


def check_destination(
    connecting: Connecting,
    topic: str,
    *,
    patience_s: float = PATIENCE_S,
    failures: KnownFailures | None = None,
) -> Sequence[str]:
    """Return the names of the queues to which the proxy sends messages to *topic*.

    *failures*: as of ``ProxyCalls``.

    Raises OptionError if it would refuse them, ClientError if none answers in time. A proxy of an
    earlier version answers when messages are sent: then no names are known.
    """
    request = producer.QueuesRequest(topic=topic, token=connecting.token)
    until_s = time.monotonic() + patience_s
    refusals = 0
    with closing(ProxyCalls(connecting, patience_s=patience_s, failures=failures)) as proxy:
        while True:
            try:
                answer = proxy.ask(lambda: calls.writable_queues(request))
            except ProxyFault as error:
                if error.retriable:
                    raise
                return ()
            if not answer.code:
                return answer.qids or ()
            refusals += 1
            if answer.code in _FINAL or time.monotonic() >= until_s:
                raise OptionError(
                    f"rows cannot be sent to the topic {topic!r}: {proxy.address} answers"
                    f" {answer.msg}"
                )
            time.sleep(backoff_ns(refusals, random.random()) / 1e9)


class Routes:
    """The names of topics' queues, in the order of their numbers; *ask* returns those of a topic.

    Like RocketMQ's producers, a task reads them again after a while, since a topic may get more.
    """

    def __init__(self, ask: Callable[[str], Sequence[str]]) -> None:
        self._ask = ask
        self._topics: dict[str, Sequence[str]] = {}
        self._since_s: float | None = None

    def queues(self, topic: str) -> Sequence[str]:
        """Return the names; none for a proxy of an earlier version. Raises as *ask*."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = self._ask(topic)
        return found

    def are_old(self, now_s: float) -> bool:
        """Return whether it is time to forget the names."""
        if self._since_s is None:
            self._since_s = now_s
        return now_s - self._since_s > ROUTE_S

    def forget(self) -> None:
        """Ask for all names again."""
        self._topics.clear()
        self._since_s = None
