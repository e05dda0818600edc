"""The listening side of remoting, shared by broker and nameserver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from broker_core.clock import now_ns
from broker_core.errors import reason_of
from broker_core.rare_warnings import RareWarnings
from broker_core.remoting.connection import Role
from broker_core.remoting_channel import Handler, RemotingChannel, address_text
from broker_core.tasks import cancel_and_wait, spawn


class RemotingServer:
    """Accepts connections and gives their requests to *handlers* (see ``Handler``), by code.

    Example::

        server = RemotingServer({RequestCode.GET_MAX_OFFSET: self.max_offset})
        address = await server.listen("127.0.0.1", 0)
        ...
        await server.close()
    """

    def __init__(
        self,
        handlers: Mapping[int, Handler],
        *,
        on_closed: Callable[[RemotingChannel], None] | None = None,
        idle_s: float = 120.0,
    ) -> None:
        """*on_closed* is called once a connection has ended, whoever ended it.

        Connections on which nothing arrives for *idle_s* (RocketMQ's default) are closed.
        """
        self._handlers = handlers
        self._on_closed = on_closed
        self._idle_s = idle_s
        self._listeners: list[asyncio.Server] = []
        self._channels: set[RemotingChannel] = set()
        self._warnings = RareWarnings("remoting")
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def channels(self) -> frozenset[RemotingChannel]:
        """The connections now open."""
        return frozenset(self._channels)

    async def listen(self, host: str, port: int) -> str:
        """Listen there too (port 0: any free one) and return ``host:port``.

        Raises OSError with a sentence that names the address if it cannot be had.
        """
        loop = asyncio.get_running_loop()
        try:
            listener = await loop.create_server(self._accept, host, port, backlog=1024)
        except OSError as error:
            reason = reason_of(error)
            raise OSError(error.errno, f"cannot listen on {host}:{port}: {reason}") from error
        self._listeners.append(listener)
        if self._sweeper is None:
            self._sweeper = spawn(self._sweep_idle(), name="close idle connections")
        return address_text(listener.sockets[0].getsockname())

    async def close(self, *, grace_s: float = 1.0) -> None:
        """Accept no more, give requests being handled *grace_s* to be answered, disconnect all."""
        for listener in self._listeners:
            listener.close()
        await cancel_and_wait(self._sweeper)
        await asyncio.gather(*(channel.close(grace_s=grace_s) for channel in self._channels))
        for listener in self._listeners:
            await listener.wait_closed()

    def _accept(self) -> RemotingChannel:
        channel = RemotingChannel(
            Role.SERVER,
            handlers=self._handlers,
            on_closed=self._connection_ended,
            warnings=self._warnings,
        )
        self._channels.add(channel)
        return channel

    def _connection_ended(self, channel: RemotingChannel) -> None:
        self._channels.discard(channel)
        if self._on_closed is not None:
            self._on_closed(channel)

    async def _sweep_idle(self) -> None:
        while True:
            await asyncio.sleep(self._idle_s / 4)
            oldest_ns = now_ns() - int(self._idle_s * 1e9)
            for channel in self.channels:
                if channel.last_activity_ns < oldest_ns:
                    spawn(channel.close(), name=f"close idle {channel.peer}")
