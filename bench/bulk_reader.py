"""A bulk reader as a separate process: ``python -m bench.bulk_reader``.

Like a backfill, it fetches the stored records of a whole topic from the first to the last,
repeatedly, and discards them. Five times a second it prints one line of JSON with its totals:
``bytes``, ``messages``, ``fetches``, and how often it reached the end (``rounds``).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from typing import Annotated, Any

import typer

from broker_core.clock import now_ns
from proxy.cli.output import print_json
from thin_client.calls import Call
from thin_client.connection import Connection
from thin_client.servers import Servers
from thrift_idl import consumer, consumer_service

_SAY_S = 0.2
_TIMEOUT_S = 60.0
_LINGER_MS = 1_000


class _Reader:
    def __init__(self, proxy: str, group: str, topic: str) -> None:
        destination = Servers(proxy, tls=None).destination
        self._connection = Connection(destination, timeout_s=_TIMEOUT_S)
        self._group = group
        self._topic = topic
        self._counts = {"bytes": 0, "messages": 0, "fetches": 0, "rounds": 0}

    def say(self) -> None:
        """Print the counts."""
        print_json({"t_s": round(now_ns() / 1e9, 3), **self._counts})

    def read_all(self) -> Iterator[None]:
        """Fetch the topic queue by queue, one fetch per step."""
        for each in self._ranges():
            offset = each.beginOffset
            while offset < each.endOffset:
                offset = self._fetch(each.qid, offset)
                yield
        self._counts["rounds"] += 1

    def _ranges(self) -> list[Any]:
        request = consumer.RangesRequest(groupId=self._group, topics=[self._topic])
        arguments = consumer_service.ranges_args(request=request)
        found: list[Any] = self._ask(Call("ranges", arguments, consumer_service.ranges_result()))
        return found

    def _fetch(self, qid: str, offset: int) -> int:
        request = consumer.FetchRequest(
            consumerId="bench",
            groupId=self._group,
            cluster="",
            fetchOffset={self._topic: {qid: offset}},
            maxLingerTime=_LINGER_MS,
            format=1,
        )
        arguments = consumer_service.fetch_args(request=request)
        (part,) = self._ask(Call("fetch", arguments, consumer_service.fetch_result())).results
        self._counts["bytes"] += len(part.records)
        self._counts["messages"] += part.nextRequestOffset - offset
        self._counts["fetches"] += 1
        return int(part.nextRequestOffset)

    def _ask(self, call: Call[Any]) -> Any:
        return self._connection.call(call, timeout_s=_TIMEOUT_S)


def main(
    proxy: Annotated[str, typer.Option()],
    group: Annotated[str, typer.Option()],
    topic: Annotated[str, typer.Option()],
    rounds: Annotated[int, typer.Option(help="0: until SIGTERM")] = 0,
) -> None:
    """Fetch and discard until the process ends."""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number))
    reader = _Reader(proxy, group, topic)
    done = 0
    reader.say()
    said_s = time.monotonic()
    while not ended and (rounds == 0 or done < rounds):
        for _ in reader.read_all():
            if ended:
                break
            if time.monotonic() - said_s > _SAY_S:
                reader.say()
                said_s = time.monotonic()
        done += 1
    reader.say()


if __name__ == "__main__":
    typer.run(main)
