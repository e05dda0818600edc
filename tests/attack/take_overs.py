"""Crashes in a row: no take-over may take longer because of the ones before it.

``python -m tests.attack.take_overs --crashes 20`` prints a table of a longer sequence.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

from broker_core.client import BrokerClient
from broker_core.errors import RemotingError
from broker_core.names import QueueName, Topic
from broker_core.remoting.message import OutgoingMessage
from testkit.processes import ROOT, Child, Children
from testkit.thrift_client import acked
from tests.attack.attacks import attack
from tests.attack.installation import GROUP, TOPIC, Installation

#: Limit of a take-over, counted from when all processes run again: locks live for 10 s.
LIMIT_S = 12.0
_KINDS = ("both", "both", "proxy", "broker")


class TakeOver(NamedTuple):
    """A kill, and the seconds until the next delivery; *ready_s*: until all ran again."""

    killed: str
    ready_s: float
    took_s: float


class _Victims:
    """Broker and proxy of an installation, killed and started again on the same files."""

    def __init__(self, at: Installation) -> None:
        self._at = at
        at.start_nameserver()
        self._broker = at.start_broker()
        self._proxy = at.start_proxy()

    def kill(self, kind: str) -> None:
        """Kill the processes of *kind* and start them again."""
        dying: list[Child] = []
        if kind != "broker":
            dying.append(self._proxy)
        if kind != "proxy":
            dying.append(self._broker)
        for child in dying:
            child.kill()
        if kind != "proxy":
            self._broker = self._at.start_broker()
        if kind != "broker":
            self._proxy = self._at.start_proxy()


async def crash(at: Installation, kinds: Sequence[str], *, healthy_s: float) -> list[TakeOver]:
    """Kill one after the other; return the time of each take-over."""
    victims = _Victims(at)
    client = BrokerClient(nameservers=[at.nameserver], client_id="sender@1#1", request_timeout_s=2)
    await client.start()
    rows: list[TakeOver] = []
    try:
        await _deliver_one(at, client)
        for kind in kinds:
            await asyncio.sleep(healthy_s)
            killed_s = time.monotonic()
            await asyncio.to_thread(victims.kill, kind)
            ready_s = time.monotonic() - killed_s
            await _deliver_one(at, client)
            rows.append(TakeOver(kind, ready_s, time.monotonic() - killed_s))
    finally:
        await client.close()
    return rows


async def _deliver_one(at: Installation, client: BrokerClient, *, within_s: float = 120) -> None:
    """Send a message, and pull until it comes; acks everything else."""
    async with asyncio.timeout(within_s):
        sent = await _send(client)
        while True:
            try:
                consumer = await at.connect()
                answer = await consumer.pull(GROUP, maxLingerTime=500, clientId="crash-test")
                if answer.messages:
                    leases = [each.leaseId for each in answer.messages]
                    await consumer.settle(GROUP, acked(answer, *leases))
                await consumer.close()
            except (OSError, EOFError):
                await asyncio.sleep(0.1)
                continue
            if sent in [message.messageId for message in answer.messages or ()]:
                return


async def _send(client: BrokerClient) -> str:
    queue = QueueName(Topic(TOPIC), "broker-a", 0)
    while True:
        try:
            receipt = await client.send(queue, OutgoingMessage(topic=queue.topic, body=b"x"))
        except RemotingError:
            await asyncio.sleep(0.1)
        else:
            return receipt.message_id


@attack(
    "broker and proxy killed together, again and again",
    answer="each take-over waits for live leases only, never for earlier waits",
)
async def crashes(at: Installation) -> str:
    """Kill both three times."""
    rows = await crash(at, ["both"] * 3, healthy_s=6)
    assert _longest_s(rows) < LIMIT_S, rows
    return f"take-overs after {', '.join(f'{row.took_s:.1f}' for row in rows)} s"


def _longest_s(rows: Sequence[TakeOver]) -> float:
    return max(row.took_s - row.ready_s for row in rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of a sequence of crashes; exit code 1 if one exceeds the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--crashes", type=int, default=20)
    parser.add_argument("--healthy-s", type=float, default=6.0, help="seconds between them")
    options = parser.parse_args(arguments)
    folder: Path = ROOT / "build" / "attack" / "take_overs"
    with Children(folder) as children:
        kinds = list(islice(cycle(_KINDS), options.crashes))
        running = crash(Installation(children), kinds, healthy_s=options.healthy_s)
        rows = asyncio.run(running)
    sys.stdout.write("| crash | killed | running again, s | first delivery, s |\n")
    sys.stdout.write("| --: | --- | --: | --: |\n")
    for number, row in enumerate(rows, 1):
        sys.stdout.write(f"| {number} | {row.killed} | {row.ready_s:.1f} | {row.took_s:.1f} |\n")
    return int(_longest_s(rows) >= LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
