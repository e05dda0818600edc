"""A port over a backlog as a process: ``python -m bench.layers.served``.

Prints a ready line with its address, and at SIGTERM its user and system time, in seconds, since the
ready line.
"""

from __future__ import annotations

import asyncio
import resource
import signal
from typing import Annotated

import typer
import uvloop

from bench.layers.stage import Stage, backlog
from proxy.cli.garbage import look_at_young_objects_only
from proxy.cli.output import print_json


def main(messages: Annotated[int, typer.Option()]) -> None:
    """Serve until SIGTERM."""
    uvloop.run(_serve(messages))


async def _serve(messages: int) -> None:
    stage = Stage()
    stage.read(backlog(messages))
    look_at_young_objects_only()  # as a proxy does
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    port = await stage.server.listen("127.0.0.1", 0)
    before = resource.getrusage(resource.RUSAGE_SELF)
    print_json({"ready": True, "address": f"127.0.0.1:{port}"})
    await ended.wait()
    used = resource.getrusage(resource.RUSAGE_SELF)
    await stage.server.close()
    stage.close()
    print_json(
        {"user_s": used.ru_utime - before.ru_utime, "system_s": used.ru_stime - before.ru_stime}
    )


if __name__ == "__main__":
    typer.run(main)
