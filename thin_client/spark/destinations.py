"""Whether rows can be sent to a topic, asked before a job writes its first row."""

from __future__ import annotations

import random
import time
from contextlib import closing

from thin_client import calls
from thin_client.backoff import backoff_ns
from thin_client.errors import ProxyFault
from thin_client.spark.option_values import OptionError
from thin_client.spark.options import Connecting
from thin_client.spark.proxy_calls import PATIENCE_S, ProxyCalls
from thrift_idl import producer

#: Codes of refusals that do not pass by themselves: illegal name, no such topic, no token or right.
_FINAL = frozenset({11, 14, 71})


def check_destination(
    connecting: Connecting, topic: str, *, patience_s: float = PATIENCE_S
) -> None:
    """Raise OptionError if the proxy would refuse messages to *topic*, ClientError if none answers
    in time. A proxy of an earlier version answers when messages are sent.
    """
    request = producer.QueuesRequest(topic=topic, token=connecting.token)
    until_s = time.monotonic() + patience_s
    failures = 0
    with closing(ProxyCalls(connecting, patience_s=patience_s)) as proxy:
        while True:
            try:
                answer = proxy.ask(lambda: calls.writable_queues(request))
            except ProxyFault as error:
                if error.retriable:
                    raise
                return
            if not answer.code:
                return
            failures += 1
            if answer.code in _FINAL or time.monotonic() >= until_s:
                raise OptionError(
                    f"rows cannot be sent to the topic {topic!r}: {proxy.address} answers"
                    f" {answer.msg}"
                )
            time.sleep(backoff_ns(failures, random.random()) / 1e9)
