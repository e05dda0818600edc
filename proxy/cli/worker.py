"""``python -m proxy.cli.worker TASK``: one of several workers, started by their supervisor."""

from __future__ import annotations

import signal
import socket
import sys
from asyncio import get_running_loop
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import structlog

from broker_core.errors import RemotingError
from proxy.app import Proxy
from proxy.cli.output import say
from proxy.cli.serving import open_history, serve
from proxy.errors import OrderlaneError
from proxy.history.record import History
from proxy.live.settings_file import SettingsFile
from proxy.observe.logs import configure_logs
from proxy.settings.proxy_settings import Settings, load_settings
from proxy.settings.types import host_port
from proxy.workers.channel import DRAIN
from proxy.workers.intake import Intake
from proxy.workers.task import Task


def run(task: Task) -> None:
    """Serve until a signal, or until the supervisor ends."""
    configure_logs(level=task.log_level)
    structlog.contextvars.bind_contextvars(worker=task.number)
    history = None if task.history is None else Path(task.history)
    file, settings = _load(task)
    with closing(open_history(history, "proxy", parts=("proxy",))) as writer:
        running = _running(task, settings, writer, file)
        serve(running, announce=lambda _: None, drains_at=(DRAIN,))


def _load(task: Task) -> tuple[SettingsFile | None, Settings]:
    if task.settings is None:
        return None, load_settings(None, task.overrides)
    first, newest = (sys.stdin.buffer.read(size) for size in task.contents)
    file = SettingsFile(Path(task.settings), task.overrides, content=first, with_groups=newest)
    return file, file.settings


@asynccontextmanager
async def _running(
    task: Task, settings: Settings, history: History, file: SettingsFile | None
) -> AsyncIterator[dict[str, Any]]:
    server = Proxy(settings, history=history, file=file)
    intake = None
    try:
        addresses = await server.start()
        if file is not None:
            get_running_loop().add_signal_handler(signal.SIGHUP, server.reload)
        thrift, http = server.servers
        thrift.lead_back_to(host_port(addresses.thrift)[1])
        await http.share(task.workers or [addresses.http])
        intake = Intake(
            socket.socket(fileno=task.channel),
            addresses,
            thrift,
            http,
            lambda: server.file_digest,
            lambda: server.stopping,
        )
        intake.start()
        yield {}
    finally:
        await server.close()
        if intake is not None:
            await intake.close()


def main(arguments: list[str]) -> int:
    """Return the exit code: 2, with one sentence, for errors that a user can fix."""
    task = Task.read(arguments[0])
    try:
        run(task)
    except (OrderlaneError, RemotingError) as error:
        say(f"orderlane: worker {task.number}: {error}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
