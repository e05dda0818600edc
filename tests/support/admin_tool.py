"""RocketMQ's own command line, ``mqadmin``: many commands in one process of Java."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from tests.support.java import java, rocketmq_programs

_LIMIT_S = 60


class AdminTool:
    """The process; one command at a time."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    async def run(
        self, *arguments: str, account: str | None = None, secret: str | None = None
    ) -> str:
        """What ``mqadmin`` prints, errors too, for these words; as *account* if one is given."""
        command = {"arguments": arguments, "account": account, "secret": secret}
        asked = asyncio.to_thread(self._ask, orjson.dumps(command) + b"\n")
        return await asyncio.wait_for(asked, _LIMIT_S)

    def _ask(self, line: bytes) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the tool ended"
        return str(orjson.loads(answer)["printed"])


@contextmanager
def admin_tool(version: str, home: Path) -> Iterator[AdminTool]:
    """The tool of *version*; *home* is made for it."""
    (home / "conf").mkdir(parents=True)
    (home / "conf/logback_tools.xml").write_text("<configuration/>")  # 4.9 does not start without
    command = java(rocketmq_programs(version), "AdminTool")
    logging = f"-Drmq.logback.configurationFile={home}/conf/logback_tools.xml"
    command[1:1] = [f"-Duser.home={home}", logging]
    with (home / "stderr").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "ROCKETMQ_HOME": str(home)},
        )
    try:
        yield AdminTool(process)
    finally:
        process.kill()
        process.communicate()
