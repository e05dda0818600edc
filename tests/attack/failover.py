"""Three brokers that elect their master: it is killed and paused under load, and impersonated.

``python -m tests.attack.failover --crashes 20`` prints a table of a longer sequence.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import yaml

from broker_core.client import BrokerClient
from broker_core.client.connection_pool import ConnectionPool
from broker_core.errors import RemotingError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.bodies import table_from_json
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.message import OutgoingMessage
from broker_core.tasks import spawn
from testkit.processes import ROOT, Child, Children
from tests.attack.attacks import attack
from tests.attack.installation import TOPIC, Installation

LIMIT_S = 15.0
QUEUE = QueueName(Topic(TOPIC), "broker-a", 0)
_READERS = Group("readers")


class TakeOver(NamedTuple):
    """How the master ended, and the seconds until the next acknowledged send."""

    end: str
    took_s: float


@dataclass
class Replicas:
    """Nameserver and three brokers of an installation, and a sender that never stops."""

    at: Installation
    client: BrokerClient
    addresses: dict[int, str]
    children: dict[int, Child] = field(default_factory=dict)
    acked: list[bytes] = field(default_factory=list)
    last_ack_s: float = 0.0
    pool: ConnectionPool = field(default_factory=ConnectionPool)

    def start(self, number: int) -> None:
        """Start one broker on its own files and port."""
        voters = [f"{each}@{address}" for each, address in self.addresses.items()]
        settings = {
            "auto_create_topics": True,
            "role": "elected",
            "broker_id": number,
            "voters": voters,
            "segment_bytes": 8 * 1024 * 1024,
        }
        file = f"replica-{number}.yaml"
        (self.at.folder / file).write_text(yaml.safe_dump(settings))
        where = ("--data", f"data-{number}", "--listen", self.addresses[number])
        self.children[number] = self.at.children.start(
            "broker", *where, "--nameserver", self.at.nameserver, "--broker-settings", file
        )
        self.at.running.append(self.children[number])

    async def figures(self, number: int) -> dict[str, str]:
        """Return the figures of one broker, {} if it does not answer."""
        request = RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO)
        try:
            answer = await self.pool.request(self.addresses[number], request, timeout_s=2)
        except RemotingError:
            return {}
        return table_from_json(answer.body)

    async def master(self, *, in_sync: str = "", within_s: float = 90) -> int:
        """Return the id of the master once it serves; *in_sync*: with these replicas."""
        async with asyncio.timeout(within_s):
            while True:
                for number in self.addresses:
                    figures = await self.figures(number)
                    if figures.get("replicaRole") == "master" and in_sync in (
                        "",
                        figures.get("inSyncReplicas"),
                    ):
                        return number
                await asyncio.sleep(0.2)

    async def send(self) -> None:
        """Send one message after the other; note those that were acknowledged."""
        number = 0
        while True:
            number += 1
            body = b"%d" % number
            with suppress(RemotingError):
                await self.client.send(QUEUE, OutgoingMessage(QUEUE.topic, body), timeout_s=2)
                self.acked.append(body)
                self.last_ack_s = time.monotonic()
            await asyncio.sleep(0.01)

    async def until_acked(self, after_s: float, *, within_s: float = 60) -> None:
        """Wait until a send that ended after *after_s* was acknowledged."""
        async with asyncio.timeout(within_s):
            while self.last_ack_s < after_s:  # noqa: ASYNC110  # nothing there notifies
                await asyncio.sleep(0.02)

    async def stored(self) -> list[bytes]:
        """Return the bodies of the queue, in order."""
        found: list[bytes] = []
        offset = 0
        while True:
            result = await self.client.pull(
                QUEUE, group=_READERS, offset=offset, suspend_ms=0, timeout_s=10
            )
            if not result.messages:
                return found
            found += [message.body for message in result.messages]
            offset = result.next_offset


@asynccontextmanager
async def replicas(at: Installation) -> AsyncIterator[Replicas]:
    """Start everything, with a topic and a sender."""
    at.start_nameserver()
    client = BrokerClient(nameservers=[at.nameserver], client_id="sender@1#1", request_timeout_s=3)
    await client.start()
    made = Replicas(at, client, dict(zip((1, 2, 3), _free_addresses(3), strict=True)))
    for number in made.addresses:
        made.start(number)
    sender: asyncio.Task[None] | None = None
    try:
        await made.master(in_sync="1,2,3")
        await _topic(client)
        sender = spawn(made.send(), name="send")
        await made.until_acked(time.monotonic())
        yield made
    finally:
        if sender is not None:
            sender.cancel()
        await client.close()
        await made.pool.close()


async def _topic(client: BrokerClient) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await client.create_topic(QUEUE.topic, queues=1)
            except RemotingError:
                await asyncio.sleep(0.2)
            else:
                return


def _free_addresses(count: int) -> list[str]:
    with socket.socket() as one, socket.socket() as two, socket.socket() as three:
        sockets = (one, two, three)[:count]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


async def take_over(group: Replicas, end: str) -> TakeOver:
    """End the master by *end*, wait for its successor, and bring it back."""
    number = await group.master(in_sync="1,2,3")
    child = group.children[number]
    began_s = time.monotonic()
    if end == "pause":
        child.pause()
    elif end == "stop":
        await asyncio.to_thread(child.terminate)
    else:
        child.kill()
    await group.until_acked(began_s + (0.5 if end == "pause" else 0.05))
    took_s = group.last_ack_s - began_s
    if end == "pause":
        child.resume()
    else:
        group.start(number)
    return TakeOver(end, took_s)


async def check(group: Replicas) -> int:
    """Return the number of acknowledged messages, all of which must be stored, in order."""
    acked = list(group.acked)
    stored = await group.stored()
    left = iter(stored)
    lost = [body for body in acked if body not in set(stored)]
    assert not lost, f"{len(lost)} acknowledged messages are missing, such as {lost[0]!r}"
    assert all(any(body == each for each in left) for body in acked), "the order has changed"
    return len(acked)


async def crash(at: Installation, ends: Sequence[str]) -> tuple[list[TakeOver], int]:
    """End one master after the other; return the take-overs and the number of acknowledged
    messages.
    """
    async with replicas(at) as group:
        rows = [await take_over(group, end) for end in ends]
        await group.master(in_sync="1,2,3")
        return rows, await check(group)


@attack(
    "a killed master",
    answer="another replica takes over within 15 s; no acknowledged message is lost",
)
async def killed_master(at: Installation) -> str:
    rows, acked = await crash(at, ["kill", "pause", "kill"])
    assert max(row.took_s for row in rows) < LIMIT_S, rows
    times = ", ".join(f"{row.took_s:.1f} ({row.end})" for row in rows)
    return f"take-overs after {times} s; {acked} of {acked} acknowledged messages stored in order"


@attack(
    "a stranger that claims to be master, or asks replicas for votes",
    answer="refused; the master keeps serving",
)
async def impersonated(at: Installation) -> str:
    async with replicas(at) as group:
        number = await group.master(in_sync="1,2,3")
        epoch = int((await group.figures(number))["masterEpoch"])
        acked, refused = len(group.acked), 0
        vote = {"term": str(epoch + 1), "logEpoch": "99", "logEnd": "999999999", "trial": "false"}
        for claimed in (0, 4, -1, 2**31 - 1):
            for term in (epoch + 1, 2**62, -1):
                ext = {**vote, "brokerName": "broker-a", "term": str(term)}
                for code, name in (
                    (RequestCode.REQUEST_VOTE, "candidate"),
                    (RequestCode.MASTER_BEAT, "master"),
                ):
                    request = RemotingCommand(code, ext={**ext, name: str(claimed)})
                    answer = await group.pool.request(
                        group.addresses[number], request, timeout_s=10
                    )
                    assert answer.code != ResponseCode.SUCCESS, (claimed, term)
                    refused += 1
        await group.until_acked(time.monotonic())
        assert await group.master() == number
        assert int((await group.figures(number))["masterEpoch"]) == epoch
        return (
            f"{refused} of {refused} requests refused; {len(group.acked) - acked} sends meanwhile"
        )


@attack(
    "a master that is cut off from its replicas, but not from clients",
    answer="it answers nothing once its lease ends, and goes on when they are back",
)
async def cut_off(at: Installation) -> str:
    """Pause both others, so that none of them can be elected either."""
    async with replicas(at) as group:
        number = await group.master(in_sync="1,2,3")
        others = [child for each, child in group.children.items() if each != number]
        for child in others:
            child.pause()
        began_s = time.monotonic()
        while (await group.figures(number)).get("replicaRole") == "master":
            assert time.monotonic() - began_s < 30, "the master keeps its role alone"
            await asyncio.sleep(0.05)
        ended_s, acked = time.monotonic() - began_s, len(group.acked)
        codes = (RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE, RequestCode.GET_MAX_OFFSET)
        for code in (*codes, RequestCode.UPDATE_CONSUMER_OFFSET):
            answer = await group.pool.request(
                group.addresses[number], RemotingCommand(code), timeout_s=10
            )
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE, code
        await asyncio.sleep(3)
        assert len(group.acked) == acked, "a send was acknowledged without a majority"
        for child in others:
            child.resume()
        await group.until_acked(time.monotonic())
        total = await check(group)
    return f"silent after {ended_s:.1f} s; {total} of {total} acknowledged messages stored in order"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of a sequence of ends; exit code 1 if one exceeds the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--crashes", type=int, default=20)
    options = parser.parse_args(arguments)
    folder: Path = ROOT / "build" / "attack" / "failover"
    ends = [("kill", "kill", "pause", "stop")[n % 4] for n in range(options.crashes)]
    with Children(folder) as children:
        rows, acked = asyncio.run(crash(Installation(children), ends))
    sys.stdout.write("| take-over | master | next acknowledged send, s |\n| --: | --- | --: |\n")
    for number, row in enumerate(rows, 1):
        sys.stdout.write(f"| {number} | {row.end} | {row.took_s:.1f} |\n")
    sys.stdout.write(f"\n{acked} of {acked} acknowledged messages are stored, in order.\n")
    return int(max(row.took_s for row in rows) >= LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
