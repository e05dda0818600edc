"""``orderlane topics``: the topics of the nameserver."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import typer

from broker_core.errors import BrokerError
from proxy.cli.connect import broker_client
from proxy.cli.options import DEFAULT_NAMESERVER, NameserverOption
from proxy.cli.output import Output, OutputFormat, print_rows

#: Internal topics: ownership records, and the template of new topics.
_INTERNAL = ("%OWN%", "TBW102")


def topics(
    everything: Annotated[
        bool, typer.Option("--all", help="include internal topics of proxies and brokers")
    ] = False,
    nameserver: NameserverOption = DEFAULT_NAMESERVER,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List topics with their brokers, queues and messages."""
    rows = asyncio.run(_rows(nameserver, everything=everything))
    print_rows(rows, columns=("topic", "brokers", "queues", "messages"), output=output)


async def _rows(nameserver: str, *, everything: bool) -> list[dict[str, Any]]:
    rows = []
    async with broker_client(nameserver) as client:
        for topic in sorted(await client.topics()):
            if topic.startswith(_INTERNAL) and not everything:
                continue
            try:
                queues = await client.queues(topic)
            except BrokerError:
                continue  # deleted in the meantime, or not readable
            ends = [await client.max_offset(queue) for queue in queues]
            starts = [await client.min_offset(queue) for queue in queues]
            rows.append(
                {
                    "topic": topic,
                    "brokers": ",".join(sorted({queue.broker for queue in queues})),
                    "queues": len(queues),
                    "messages": sum(ends) - sum(starts),
                }
            )
    return rows
