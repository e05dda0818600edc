"""Running several workers with the options of the command line."""

from __future__ import annotations

import signal
import sys
from asyncio import get_running_loop
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker_core.tasks import cancel_and_wait, spawn
from proxy.live.settings_file import SettingsFile
from proxy.net.process_name import client_id, reachable
from proxy.settings.proxy_settings import Settings
from proxy.settings.types import host_port
from proxy.workers.addresses import WorkerAddresses, worker_addresses
from proxy.workers.channel import Report
from proxy.workers.served_file import ServedFile
from proxy.workers.supervisor import Launch, Supervisor
from proxy.workers.task import Task

_WORKER = f"{__name__.rpartition('.')[0]}.worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Options common to all workers."""

    settings: Settings
    file: SettingsFile | None
    history: Path | None
    log_level: str
    #: Values that override file and environment, by dotted name.
    overrides: dict[str, Any] = field(default_factory=dict)

    def shared_addresses(self) -> dict[str, str]:
        """Return the listen addresses, by setting."""
        listen = self.settings.listen
        shared = {"listen.thrift": listen.thrift, "listen.http": listen.http}
        return shared if listen.producer is None else {**shared, "listen.producer": listen.producer}


@asynccontextmanager
async def running_workers(wanted: Wanted) -> AsyncIterator[dict[str, Any]]:
    """Run the number of workers given in the settings; SIGHUP makes them reload the settings file.

    Raises OrderlaneError if a worker cannot start, or fails while draining.
    """
    shared = wanted.shared_addresses()
    made = worker_addresses(wanted.settings.workers, shared=shared)
    here = client_id()
    known = [reachable(worker.http, here) for worker in made if host_port(worker.http)[1]]

    served = None if wanted.file is None else ServedFile(wanted.file)

    def command(worker: WorkerAddresses, channel: int) -> Launch:
        contents = () if served is None else served.contents
        task = Task(
            number=worker.number,
            channel=channel,
            settings=None if wanted.file is None else str(wanted.file.path),
            contents=tuple(map(len, contents)),
            overrides={**wanted.overrides, **_own(worker)},
            history=None if wanted.history is None else str(wanted.history),
            log_level=wanted.log_level,
            workers=known,
        )
        return Launch([sys.executable, "-m", _WORKER, task.text()], b"".join(contents))

    def reported(report: Report) -> None:
        if served is not None:
            served.reported(report.file)

    supervisor = Supervisor(made, command, shared=shared, reported=reported)
    at = await supervisor.start()
    following = None if served is None else spawn(served.run(), name="follow the settings file")
    try:
        if served is not None:
            get_running_loop().add_signal_handler(signal.SIGHUP, _reload, supervisor, served)
        yield {
            "thrift": at["listen.thrift"],
            "http": at["listen.http"],
            "workers": supervisor.workers(),
        }
    finally:
        await cancel_and_wait(following)
        await supervisor.close()


def _reload(supervisor: Supervisor, served: ServedFile) -> None:
    spawn(served.look(), name="read the settings file")
    supervisor.pass_on(signal.SIGHUP)


def _own(worker: WorkerAddresses) -> dict[str, Any]:
    # DDMQ producers connect to the supervisor's port, and are passed on like other clients.
    return {"listen.thrift": worker.thrift, "listen.http": worker.http, "listen.producer": None}
