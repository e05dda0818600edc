"""Idle connected clients: ``python -m bench.load.idle``.

They connect from several loopback addresses, like many hosts, to stay within a proxy's limit of
connections per address. With ``--wait-s`` each has a pull open that is answered only after that
time, then the next one; without it all are silent. Prints one line of JSON when all are connected,
and one at SIGTERM: connections closed by the proxy, and answered pulls.
"""

from __future__ import annotations

import select
import signal
import socket
import time
from typing import Annotated

import typer

from proxy.cli.descriptors import allow_more_descriptors
from proxy.cli.output import print_json
from thin_client.wire import encode_call
from thrift_idl import consumer, consumer_service

#: Below the default of ``limits.max_connections_per_address``.
_EACH_ADDRESS = 900
_LOOK_S = 0.2
_READ_BYTES = 1 << 16


def allow_descriptors(count: int) -> None:
    """Allow this process and its children *count* descriptors and some more.

    Raises RuntimeError if the system refuses.
    """
    if (allowed := allow_more_descriptors()) < count + 200:
        raise RuntimeError(
            f"{count} connections need {count + 200} descriptors, and this system allows a process"
            f" {allowed} (ulimit -Hn): raise that"
        )


class IdleClients:
    """All connections of the process."""

    def __init__(self, address: str, *, connections: int, group: str, wait_s: float) -> None:
        """Connect all of them. Raises OSError."""
        host, _, port = address.rpartition(":")
        self.lost = self.answered = 0
        self._poll = select.epoll()
        self._of: dict[int, socket.socket] = {}
        self._pull = _pull(group, wait_s) if wait_s else b""
        self._pace_s = wait_s / connections if wait_s else 0.0
        for number in range(connections):
            # All of 127.0.0.0/8 is this machine.
            source = f"127.0.0.{2 + number // _EACH_ADDRESS}"
            one = socket.create_connection((host, int(port)), 30, source_address=(source, 0))
            one.setblocking(False)
            self._of[one.fileno()] = one
            self._poll.register(one, select.EPOLLIN)

    def begin(self) -> None:
        """Send each client's first pull, spread over the wait time, as clients start at different
        times.
        """
        if not self._pull:
            return
        due_s = time.monotonic()
        for one in list(self._of.values()):
            one.send(self._pull)
            due_s += self._pace_s
            while (left_s := due_s - time.monotonic()) > 0:
                self.turn(left_s)

    def turn(self, wait_s: float) -> None:
        """Handle answers for at most this time: send the next pull of each answered client."""
        for descriptor, _ in self._poll.poll(wait_s):
            one = self._of.get(descriptor)
            if one is None:
                continue
            try:
                data = one.recv(_READ_BYTES)
            except ConnectionError:
                data = b""
            if data:
                self.answered += 1
                one.send(self._pull)
            else:
                self.lost += 1
                del self._of[descriptor]
                one.close()


def _pull(group: str, wait_s: float) -> bytes:
    request = consumer.PullRequest(
        groupId=group, maxBatchSize=1, maxLingerTime=int(wait_s * 1000), clientId="idle"
    )
    return encode_call("pull", consumer_service.pull_args(request=request), sequence_id=1)


def main(
    address: Annotated[str, typer.Option(help="host:port of a proxy")],
    connections: Annotated[int, typer.Option()],
    group: Annotated[str, typer.Option()] = "idle",
    wait_s: Annotated[float, typer.Option(help="0: silent")] = 0.0,
) -> None:
    """Stay connected until SIGTERM."""
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: ended.append(number))
    allow_descriptors(connections)
    clients = IdleClients(address, connections=connections, group=group, wait_s=wait_s)
    print_json({"ready": True, "connected": connections})
    clients.begin()
    print_json({"begun": True})
    while not ended:
        clients.turn(_LOOK_S)
    print_json({"lost": clients.lost, "answered": clients.answered})


if __name__ == "__main__":
    typer.run(main)
