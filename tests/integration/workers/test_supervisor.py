"""The supervisor with small processes in place of workers."""

from __future__ import annotations

import asyncio
import sys

import pytest

from proxy.errors import OrderlaneError
from proxy.workers import restarts, supervisor
from proxy.workers.addresses import WorkerAddresses
from proxy.workers.supervisor import Launch, Supervisor

#: Reports that it is ready, and then stands still: it neither reports again nor drains.
_STUCK = """
import signal, socket, sys
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
end = socket.socket(fileno=int(sys.argv[1]))
end.send(b'{"thrift":"a:1","http":"a:2","listening":true,"open":0,"movable":0,"taken":0}')
while True:
    signal.pause()
"""

#: Ends well by the request to drain, and at once by SIGTERM, which it has had before.
_DRAINS = """
import signal, socket, sys
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
end = socket.socket(fileno=int(sys.argv[1]))
end.send(b'{"thrift":"a:1","http":"a:2","listening":true,"open":0,"movable":0,"taken":0}')
while True:
    signal.pause()
"""

#: Stands still before its first report, and does not end by SIGTERM.
_MUTE = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    signal.pause()
"""


def _mute(_worker: WorkerAddresses, _channel: int) -> Launch:
    return Launch([sys.executable, "-S", "-c", _MUTE])


def _drains(_worker: WorkerAddresses, channel: int) -> Launch:
    return Launch([sys.executable, "-S", "-c", _DRAINS, str(channel)])


def _stuck(_worker: WorkerAddresses, channel: int) -> Launch:
    return Launch([sys.executable, "-S", "-c", _STUCK, str(channel)])


@pytest.mark.sockets
async def test_a_worker_that_stands_still_does_not_hold_up_the_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "LOOK_S", 0.01)
    made = Supervisor(
        [WorkerAddresses(1, "127.0.0.1:0", "127.0.0.1:0")],
        _stuck,
        shared={"listen.thrift": "127.0.0.1:0", "listen.http": "127.0.0.1:0"},
    )
    await made.start()
    monkeypatch.setattr(restarts, "SILENT_S", 0.2)
    async with asyncio.timeout(30):
        with pytest.raises(OrderlaneError, match="worker 1 ended by SIGKILL instead of draining"):
            await made.close()


@pytest.mark.sockets
async def test_workers_that_a_service_manager_signals_too_drain_nevertheless() -> None:
    """A second SIGTERM would end them at once."""
    made = Supervisor(
        [WorkerAddresses(1, "127.0.0.1:0", "127.0.0.1:0")],
        _drains,
        shared={"listen.thrift": "127.0.0.1:0", "listen.http": "127.0.0.1:0"},
    )
    await made.start()
    async with asyncio.timeout(30):
        await made.close()


@pytest.mark.sockets
async def test_a_worker_that_stands_still_before_it_is_ready_ends_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(supervisor, "LOOK_S", 0.01)
    monkeypatch.setattr(restarts, "SILENT_S", 0.5)
    made = Supervisor(
        [WorkerAddresses(1, "127.0.0.1:0", "127.0.0.1:0")],
        _mute,
        shared={"listen.thrift": "127.0.0.1:0", "listen.http": "127.0.0.1:0"},
    )
    async with asyncio.timeout(30):
        with pytest.raises(OrderlaneError, match="worker 1 ended by SIGKILL before it was ready"):
            await made.start()
