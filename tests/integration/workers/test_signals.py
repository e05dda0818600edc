"""Signals of a worker: those of its supervisor, and of a service manager that signals all."""

from __future__ import annotations

import asyncio
import sys

import pytest

#: Drains at the supervisor's request; meanwhile SIGTERM comes as often as the argument says.
_WORKER = """
import asyncio, os, signal, sys
from contextlib import asynccontextmanager
from proxy.cli.serving import serve
from proxy.workers.channel import DRAIN

def come(number):
    os.kill(os.getpid(), number)

@asynccontextmanager
async def running():
    yield {}
    for _ in range(int(sys.argv[1])):
        come(signal.SIGTERM)
        await asyncio.sleep(0.05)
    come(DRAIN)
    await asyncio.sleep(0.05)
    print("drained")

serve(running(), announce=lambda _: come(DRAIN), drains_at=(DRAIN,))
"""


@pytest.mark.sockets
@pytest.mark.parametrize(("terms", "ended"), [(0, "drained"), (1, "drained"), (2, "")])
async def test_only_a_second_sigterm_ends_a_worker_at_once(terms: int, ended: str) -> None:
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _WORKER, str(terms), stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        out, _ = await worker.communicate()
    assert (worker.returncode, out.decode().strip()) == (0 if ended else 143, ended)
