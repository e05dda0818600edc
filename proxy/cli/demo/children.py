"""Child processes of the demo, which print lines of JSON."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import orjson

from proxy.errors import OrderlaneError


class Child:
    """A process that prints one JSON object per line; its stderr goes to a file."""

    def __init__(self, name: str, process: Process, log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, name: str, *arguments: str, log: Path) -> Child:
        """Run ``python *arguments``."""
        with log.open("wb") as stderr:
            process = await asyncio.create_subprocess_exec(
                sys.executable, *arguments, stdin=PIPE, stdout=PIPE, stderr=stderr
            )
        return cls(name, process, log)

    async def line(self) -> dict[str, Any]:
        """Return the next line. Raises OrderlaneError, with the last log lines, at the end."""
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            await self._process.wait()
            said = self._log.read_text(errors="replace").strip().splitlines()[-3:]
            raise OrderlaneError(
                f"{self.name} exited with code {self._process.returncode}: {' / '.join(said)}"
            )
        return dict(orjson.loads(line))

    async def lines(self) -> AsyncIterator[dict[str, Any]]:
        """Yield all lines until the process ends."""
        while True:
            try:
                yield await self.line()
            except OrderlaneError:
                if self._process.returncode:
                    raise
                return

    def go(self) -> None:
        """Tell the process to begin."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")

    async def stop(self) -> None:
        """Send SIGTERM and wait for the end."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        await self._process.wait()
