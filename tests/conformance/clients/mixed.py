"""Run a client per language in one group of a real gateway, kill at random, check the order."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from testkit.eventually import eventually
from testkit.gateway import GROUP, Gateway, run_gateway
from testkit.processes import ROOT
from testkit.thin_clients.languages import Language, client_environment
from tests.conformance.clients.gateway_play import BROKERS, LOCK, clock_offset_ns

MESSAGES, KEYS, QUEUES = 20_000, 400, 8
#: Messages are sent in this many parts; during the pause after each, one client is killed.
PARTS, PAUSE_S = 20, (0.6, 1.4)
#: Limit without another finished message, after all are sent.
PATIENCE_S = 60.0


@dataclass
class Member:
    """One language's client: successive processes with one history."""

    language: Language
    servers: str
    history: Path
    process: asyncio.subprocess.Process | None = None
    kills: int = 0
    begins_at: int = 0  # byte offset of this process in the history
    codes: list[int] = field(default_factory=list)  # of processes that ended by themselves

    async def start(self) -> None:
        """Start a new process."""
        self.begins_at = self.history.stat().st_size if self.history.exists() else 0
        name = self.language.name
        options = {
            "servers": self.servers,
            "group": GROUP,
            "concurrency": 16,
            "max_run": 4,
            "client_id": name,
            "work_ms": [0, 100],  # so that most handlers are running at a kill
            "quiet": True,
            "history": str(self.history),
            "node": name,
            "clock_offset_ns": clock_offset_ns(),
        }
        self.process = await asyncio.create_subprocess_exec(
            *self.language.program(),
            json.dumps(options),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=ROOT,
            env=client_environment(),
        )

    async def kill(self) -> None:
        """Kill the process (``kill -9``) and start a new one; record one that ended by itself."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.kill()
            self.kills += 1
        elif self.process.returncode != 0:
            self.codes.append(self.process.returncode)
        await self.process.wait()
        await self.start()

    @property
    def handled(self) -> int:
        """Return the number of ended handlers, by the history."""
        return self._count("handle_end")

    def _count(self, kind: str, *, since: int = 0) -> int:
        """Count events of this kind from byte *since* on, without a torn last line."""
        if not self.history.exists():
            return 0
        marks = tuple(f'"e":{space}"{kind}"'.encode() for space in ("", " "))
        with self.history.open("rb") as lines:
            lines.seek(since)
            return sum(any(mark in line for mark in marks) for line in lines)

    async def stop(self) -> None:
        """Send SIGTERM once the process is ready for it, and return its exit code."""
        assert self.process is not None
        # In this process: a killed one may not have written its start.
        await eventually(lambda: self._count("start", since=self.begins_at) > 0, within_s=60)
        await asyncio.sleep(0.5)  # its signal handler may be installed just after
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = await asyncio.wait_for(self.process.wait(), 40)
        except TimeoutError:
            code = -1
            self.process.kill()
            await self.process.wait()
        if code != 0:
            self.codes.append(code)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run."""

    lines: list[str]
    failures: list[str]


async def run_mixed(languages: Sequence[Language], *, seed: int) -> Outcome:
    """Run it; no failures means that every promise held."""
    began = time.monotonic()
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="orderlane-mixed-") as folder:
        topic = {"visibility_timeout_s": 2.0, "max_deliveries": 1000}
        async with run_gateway(
            Path(folder), brokers=BROKERS, queues=QUEUES, topic=topic, lock=LOCK
        ) as gateway:
            proxies = [(await gateway.start_proxy())[1].thrift for _ in range(2)]
            members = [
                Member(each, ",".join(proxies), gateway.histories / f"{each.name}.jsonl")
                for each in languages
            ]
            try:
                for member in members:
                    await member.start()
                await _attack(gateway, members, dice)
                finished = await _finished(gateway)
            finally:
                await asyncio.gather(*(member.stop() for member in members))
        report = gateway.verify()
        handled = {member.language.name: member.handled for member in members}
    counts, seconds = report.counts, time.monotonic() - began
    lines = [
        f"{member.language.name:<8} handled {handled[member.language.name]:>6},"
        f" was killed {member.kills} times"
        for member in members
    ]
    lines.append(
        f"mixed group: {counts.acknowledged} messages of {counts.keys} keys, {counts.handled}"
        f" handled, {counts.duplicates} again, {counts.late} late, {seconds:.0f} s, seed {seed}"
    )
    failures = [
        *(
            f"{name} {each.count} times: {each.examples[0]}"
            for name, each in report.violations.items()
        ),
        *(f"{name} handled nothing" for name, count in handled.items() if not count),
        *(f"{each.language.name} ended with {each.codes}" for each in members if each.codes),
    ]
    if not finished or counts.acknowledged != MESSAGES:
        failures.append(f"not all of {MESSAGES} messages were sent and finished")
    return Outcome(lines, failures)


async def _attack(gateway: Gateway, members: Sequence[Member], dice: random.Random) -> None:
    """Send all messages; after each part kill one client, in turn."""
    victims: list[Member] = []
    for _ in range(PARTS):
        keys = [f"k{dice.randrange(KEYS)}" for _ in range(MESSAGES // PARTS)]
        await gateway.send(keys)
        await asyncio.sleep(dice.uniform(*PAUSE_S))
        if not victims:
            victims = dice.sample(members, len(members))
        await victims.pop().kill()


async def _finished(gateway: Gateway) -> bool:
    """Return False if messages stop finishing; the total time depends on the machine."""
    finished, deadline = 0, time.monotonic() + PATIENCE_S
    while not gateway.all_finished():
        if (now := len(gateway.events("finish"))) > finished:
            finished, deadline = now, time.monotonic() + PATIENCE_S
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(1.0)
    return True
