"""Bytes of an installation's files that change: nothing else than was sent is delivered."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import sys
from pathlib import Path

import orjson

from broker_core.client import BrokerClient, PullStatus
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.message import OutgoingMessage
from testkit.processes import ROOT
from tests.attack.attacks import attack
from tests.attack.installation import TOPIC, Installation

MESSAGES, QUEUES = 600, 4
FLIPS = 24
_SMALL = {"max_message_bytes": 65_536, "segment_bytes": 131_072, "default_queues": QUEUES}


def _body(number: int) -> bytes:
    return b"%08d" % number * (number % 90 + 10)


async def _client(at: Installation) -> BrokerClient:
    client = BrokerClient(nameservers=[at.nameserver], client_id="reader@1#1", request_timeout_s=30)
    await client.start()
    return client


async def _send_all(at: Installation) -> None:
    client = await _client(at)
    try:
        for number in range(MESSAGES):
            queue = QueueName(Topic(TOPIC), "broker-a", number % QUEUES)
            message = OutgoingMessage(Topic(TOPIC), _body(number), key=f"k{number}", tag="red")
            await client.send(queue, message)
    finally:
        await client.close()


async def _read_all(at: Installation) -> tuple[set[int], int]:
    """Return the numbers of the messages delivered, and how many were reported as damaged."""
    client = await _client(at)
    found: set[int] = set()
    damaged = 0
    try:
        for queue_id in range(QUEUES):
            queue = QueueName(Topic(TOPIC), "broker-a", queue_id)
            offset = 0
            while True:
                result = await client.pull(
                    queue, group=Group("audit"), offset=offset, max_messages=64, suspend_ms=0
                )
                for message in result.messages:
                    number = message.queue_offset * QUEUES + queue_id
                    assert message.body == _body(number), "another body was delivered"
                    assert (message.key, message.tag) == (f"k{number}", "red"), "another key"
                    found.add(number)
                if result.status is PullStatus.DAMAGED:
                    assert "commitlog/" in result.damage, result.damage
                    damaged += result.next_offset - offset
                if result.next_offset >= result.max_offset and not result.messages:
                    break
                offset = max(result.next_offset, offset)
    finally:
        await client.close()
    return found, damaged


def _used_files(data: Path) -> list[Path]:
    folders = ("commitlog", "consumequeue", "index")
    files = [path for name in folders for path in (data / name).rglob("*") if path.is_file()]
    return sorted(path for path in files if path.read_bytes().rstrip(b"\0"))


def _flip(path: Path, chooser: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[chooser.randrange(len(content.rstrip(b"\0")))] ^= chooser.randrange(1, 256)
    path.write_bytes(content)


@attack(
    "a byte changed on disk in any file of the broker, ranges of zeros, removed or swapped files",
    answer="intact messages are served, what is not is reported, no other bytes are delivered",
)
async def flipped_bytes(at: Installation) -> str:
    at.start_nameserver()
    broker = at.start_broker(**_SMALL)
    await _send_all(at)
    broker.terminate()
    chooser = random.Random(1)
    whole = at.folder / "data"
    shutil.copytree(whole, at.folder / "flipped")
    flips = 0
    for path in chooser.sample(_used_files(at.folder / "flipped"), k=6):
        for _ in range(FLIPS // 6):
            _flip(path, chooser)
            flips += 1
    at.start_broker(data="flipped", **_SMALL)
    found, damaged = await _read_all(at)
    assert len(found) + damaged == MESSAGES, f"{len(found)} served, {damaged} damaged"
    assert damaged <= flips, "intact messages are not served"
    report = await asyncio.to_thread(_checked, at.folder / "flipped")
    assert not (damaged and report["clean"]), report
    return f"{flips} flips: {len(found):,} of {MESSAGES:,} messages served, {damaged} reported"


def _checked(folder: Path) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", "proxy.cli", "store", "check", str(folder)],
        cwd=ROOT, capture_output=True, check=False, timeout=120,
    )  # fmt: skip
    report: dict[str, object] = orjson.loads(done.stdout)
    assert done.returncode == (0 if report["clean"] else 1), done.stderr
    return report


@attack(
    "a table, or its digits, changed or removed",
    answer="its copy is used; without one the broker refuses to start and names it",
)
async def lost_tables(at: Installation) -> str:
    at.start_nameserver()
    broker = at.start_broker(**_SMALL)
    await _send_all(at)
    broker.terminate()
    config = at.folder / "data" / "config"
    table = config / "topics.json"
    chooser = random.Random(2)
    _flip(table, chooser)
    broker = at.start_broker(**_SMALL)
    found, _ = await _read_all(at)
    assert len(found) == MESSAGES
    broker.terminate()
    for path in config.glob("topics.json*"):
        path.unlink()
    done = await asyncio.to_thread(
        subprocess.run,
        [
            *(sys.executable, "-m", "proxy.cli", "broker", "--listen", "127.0.0.1:0"),
            *("--data", str(at.folder / "data")),
        ],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2, done.returncode
    assert "topics.json" in done.stderr
    return "1 flip healed by the copy; without both, no start: 1 sentence"
