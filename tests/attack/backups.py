"""Backups that were changed, and logs older than their clients."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from broker_core.client import BrokerClient
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.message import OutgoingMessage
from testkit.processes import ROOT
from tests.attack.attacks import attack
from tests.attack.installation import TOPIC, Installation

MESSAGES = 200
FLIPS = 8
_QUEUE = QueueName(Topic(TOPIC), "broker-a", 0)
_GROUP = Group("audit")
_SMALL = {"segment_bytes": 131_072, "max_message_bytes": 65_536, "default_queues": 1}


async def _client(at: Installation) -> BrokerClient:
    client = BrokerClient(nameservers=[at.nameserver], client_id="reader@1#1", request_timeout_s=30)
    await client.start()
    return client


async def _send(at: Installation, *, first: int, number: int) -> None:
    client = await _client(at)
    for each in range(first, first + number):
        await client.send(_QUEUE, OutgoingMessage(Topic(TOPIC), b"%06d" % each * 50))
    await client.close()


async def _store(at: Installation, *words: object) -> tuple[int, str]:
    """Run a command of ``orderlane store``; return its exit code and what it wrote."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "proxy.cli", "store", *map(str, words)],
        cwd=at.folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def _flip(path: Path, chooser: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[chooser.randrange(len(content))] ^= 1 << chooser.randrange(8)
    path.write_bytes(content)


@attack(
    "a byte changed in any file of a backup, a file removed, an import over existing data",
    answer="refused, with the file; nothing that a broker would start with is made",
)
async def changed_backups(at: Installation) -> str:
    at.start_nameserver()
    at.start_broker(**_SMALL)
    await _send(at, first=0, number=MESSAGES)
    code, said = await _store(at, "export", "--data", "data", "--to", "whole")
    assert code == 0, said
    code, said = await _store(at, "import", "--from", "whole", "--data", "data")
    assert code == 2, said
    assert "in use" in said, said
    chooser = random.Random(1)
    files = sorted(path for path in (at.folder / "whole").rglob("*") if path.stat().st_size)
    files = [path.relative_to(at.folder / "whole") for path in files if path.is_file()]
    for number in range(FLIPS):
        name, copy = chooser.choice(files), at.folder / f"copy-{number}"
        shutil.copytree(at.folder / "whole", copy)
        if number % 4:
            _flip(copy / name, chooser)
        else:
            (copy / name).unlink()
        code, said = await _store(at, "import", "--from", copy, "--data", f"new-{number}")
        assert code == 2, f"{name}: {said}"
        assert name.name in said, said
        assert "Traceback" not in said, said
        assert not (at.folder / f"new-{number}" / "format").exists()
    return f"{FLIPS} of {FLIPS} changed backups refused"


@attack(
    "a broker started with a log older than what its proxies, consumers and records have seen",
    answer="positions behind its end do not count: new messages at the same offsets are delivered",
)
async def older_log(at: Installation) -> str:
    at.start_nameserver()
    broker = at.start_broker(**_SMALL)
    await _send(at, first=0, number=MESSAGES)
    code, said = await _store(at, "export", "--data", "data", "--to", "copy")
    assert code == 0, said
    await _send(at, first=MESSAGES, number=MESSAGES)
    client = await _client(at)
    life = await client.life(_QUEUE)
    await client.commit_offset(_GROUP, _QUEUE, 2 * MESSAGES, life=life, at_once=True)
    broker.terminate()
    code, said = await _store(at, "import", "--from", "copy", "--data", "restored")
    assert code == 0, said
    at.start_broker(data="restored", **_SMALL)
    await _send(at, first=1000, number=2 * MESSAGES)
    client = await _client(at)
    now = await client.topic_life(_QUEUE)
    assert now.former == {life: MESSAGES}, now
    with pytest.raises(BrokerError, match="former life"):
        await client.commit_offset(_GROUP, _QUEUE, 2 * MESSAGES, life=life)
    pulled = await client.pull(_QUEUE, group=_GROUP, offset=MESSAGES, max_messages=1, suspend_ms=0)
    assert pulled.messages[0].body.startswith(b"001000"), pulled.messages
    await client.close()
    return f"offsets {MESSAGES} to {2 * MESSAGES} used again, in another life"
