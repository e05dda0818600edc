"""RocketMQ's own command line, ``mqadmin``: many commands in one Java process."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson

from broker_core.tasks import cancel_and_wait, spawn
from testkit.java import java
from tests.conformance.rocketmq.programs import rocketmq_programs

_LIMIT_S = 60
#: Commands at a time: each starts clients with time limits of a few seconds.
_AT_A_TIME = 4
#: Tries of a command that exceeded its time limit on a busy machine.
_TRIES = 4
_LATE = (
    *("RemotingTimeoutException", "RemotingTooMuchRequestException"),
    *("RemotingConnectException", "RemotingSendRequestException"),
    "has created already",  # two commands in the same ms have the same client name
)
_LINE_BYTES = 16 * 1024 * 1024


class AdminTool:
    """The process. Commands may run concurrently, each in its own thread."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ids = itertools.count()
        self._waiting: dict[int, asyncio.Future[str]] = {}
        self._places = asyncio.Semaphore(_AT_A_TIME)

    async def run(
        self, *arguments: str, account: str | None = None, secret: str | None = None
    ) -> str:
        """Return the output of ``mqadmin`` with errors, for these words; as *account* if given.

        The command must be idempotent: it is repeated if an answer came too late.
        """
        command = {"arguments": arguments, "account": account, "secret": secret}
        async with self._places:
            for _ in range(_TRIES):
                printed = await self._run(command)
                if not any(late in printed for late in _LATE):
                    break
        return printed

    async def _run(self, command: dict[str, object]) -> str:
        number = next(self._ids)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps({"id": number, **command}) + b"\n")
        return await asyncio.wait_for(answer, _LIMIT_S)

    async def read(self) -> None:
        """Receive the answers."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            answer = orjson.loads(line)
            self._waiting.pop(answer["id"]).set_result(answer["printed"])


@asynccontextmanager
async def admin_tool(version: str, home: Path) -> AsyncIterator[AdminTool]:
    """Run the tool of *version*; *home* is created for it."""
    logging = home / "conf/logback_tools.xml"
    logging.parent.mkdir(parents=True)
    logging.write_text("<configuration/>")
    command = java(rocketmq_programs(version), "AdminTool", heap="128m")
    command[1:1] = [f"-Duser.home={home}", f"-Drmq.logback.configurationFile={logging}"]
    with (home / "stderr").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
            limit=_LINE_BYTES,
            env={**os.environ, "ROCKETMQ_HOME": str(home)},
        )
    tool = AdminTool(process)
    reading = spawn(tool.read(), name="read mqadmin")
    try:
        yield tool
    finally:
        process.kill()
        await process.wait()
        await cancel_and_wait(reading)
