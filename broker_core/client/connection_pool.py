"""Connections of a client, one per address, opened when needed and reopened after a loss."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from broker_core.errors import STOPPING, ConnectionLost, NotConnected, NotSentInTime, reason_of
from broker_core.remoting.codes import request_name
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.connection import Role
from broker_core.remoting.signing import Credentials
from broker_core.remoting_channel import Handler, RemotingChannel
from broker_core.tasks import cancel_and_wait, spawn
from broker_core.tls import SHUTDOWN_S, ClientContext, why_broken
from broker_core.tracebacks import forget_frames


class ConnectionPool:
    """Shares one connection per address among all callers."""

    def __init__(
        self,
        *,
        handlers: Mapping[int, Handler] | None = None,
        on_connected: Callable[[], None] | None = None,
        on_lost: Callable[[str], None] | None = None,
        connect_timeout_s: float = 3.0,
        credentials: Credentials | None = None,
        tls: ClientContext | None = None,
    ) -> None:
        """Create a pool without connections.

        Args:
            handlers: answer requests of brokers, by code
            on_connected: called after each new connection
            on_lost: called with the address of each connection that ended
            connect_timeout_s: timeout of an attempt
            credentials: account that signs all requests
            tls: None for plain connections
        """
        self._credentials = credentials
        self._tls = tls
        self._on_connected = on_connected
        self._on_lost = on_lost
        self._handlers = {} if handlers is None else handlers
        self._connect_timeout_s = connect_timeout_s
        self._channels: dict[str, RemotingChannel] = {}
        self._connecting: dict[str, asyncio.Task[RemotingChannel | ConnectionLost]] = {}
        self._closed = False

    async def request(
        self, address: str, command: RemotingCommand, *, timeout_s: float
    ) -> RemotingCommand:
        """Send a request to *address* (host:port), connecting first if necessary.

        Returns the answer, of any code; raises ConnectionLost or RequestTimeout.
        """
        channel = self._channels.get(address)
        if channel is None or channel.is_closed:
            started = asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(timeout_s):
                    channel = await self._connect(address)
            except TimeoutError:
                name = request_name(command.code)
                raise NotSentInTime(
                    f"{name}: not connected to {address} within {timeout_s:.3g} s"
                ) from None
            timeout_s -= asyncio.get_running_loop().time() - started
        answer = await self.request_over(channel, command, timeout_s=timeout_s)
        if answer.remark == STOPPING and self._channels.get(address) is channel:
            # Later requests do not meet the end of the connection, which leaves a doubt.
            del self._channels[address]
        return answer

    async def connected(self, address: str, *, timeout_s: float) -> RemotingChannel:
        """Return the open connection to *address*, for requests that must share one.

        The server may forget what it learned on a connection that ends. Raises ConnectionLost or
        RequestTimeout.
        """
        channel = self._channels.get(address)
        if channel is not None and not channel.is_closed:
            return channel
        try:
            async with asyncio.timeout(timeout_s):
                return await self._connect(address)
        except TimeoutError:
            raise NotSentInTime(f"not connected to {address} within {timeout_s:.3g} s") from None

    async def request_over(
        self, channel: RemotingChannel, command: RemotingCommand, *, timeout_s: float
    ) -> RemotingCommand:
        """Send a request over *channel*, which is never replaced.

        Returns the answer, of any code; raises ConnectionLost or RequestTimeout.
        """
        if self._credentials is not None:
            command.sign(self._credentials.signed(command.ext, command.body))
        return await channel.request(command, timeout_s=timeout_s)

    def renew(self) -> list[RemotingChannel]:
        """Use new connections for later requests; return the previous ones.

        These stay open for the requests under way.
        """
        before = list(self._channels.values())
        self._channels.clear()
        return before

    def address_of(self, channel: RemotingChannel) -> str | None:
        """Return the address whose connection is *channel*, as it was asked for; None for another
        one. O(connections).
        """
        return next((each for each, one in self._channels.items() if one is channel), None)

    async def close(self) -> None:
        """Close all connections; waiting requests get ConnectionLost."""
        self._closed = True
        await cancel_and_wait(*self._connecting.values())
        await asyncio.gather(*(channel.close() for channel in self._channels.values()))
        self._channels.clear()

    async def _connect(self, address: str) -> RemotingChannel:
        if self._closed:
            raise NotConnected(f"not connected to {address}: this client is closed")
        attempt = self._connecting.get(address)
        if attempt is None:
            attempt = spawn(self._open(address), name=f"connect to {address}")
            self._connecting[address] = attempt
            attempt.add_done_callback(lambda _: self._connecting.pop(address, None))
        # Shielded: a caller that gives up must not end the attempt of the others.
        try:
            result = await asyncio.shield(attempt)
        except asyncio.CancelledError:
            if not attempt.cancelled():
                raise
            raise NotConnected(f"not connected to {address}: this client is closed") from None
        try:
            if isinstance(result, ConnectionLost):
                raise result
            return result
        finally:
            # A failure refers to this frame and to its callers' frames, with their requests.
            del result, attempt

    async def _open(self, address: str) -> RemotingChannel | ConnectionLost:
        # A failure is a result: the callers raise it, and the task does not log it.
        host, _, port = address.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, channel = await loop.create_connection(
                    lambda: RemotingChannel(
                        Role.CLIENT,
                        handlers=self._handlers,
                        on_closed=lambda _: self._lost(address),
                    ),
                    host.strip("[]"),
                    int(port),
                    **self._tls_options(),
                )
        except TimeoutError:
            return NotConnected(f"cannot connect to {address}: no answer")
        except ssl.SSLError as error:
            forget_frames(error)
            return NotConnected(f"cannot connect to {address} by TLS: {why_broken(error)}")
        except OSError as error:
            forget_frames(error)
            return NotConnected(f"cannot connect to {address}: {reason_of(error)}")
        except (ValueError, OverflowError) as error:
            return NotConnected(f"cannot connect to {address}: {error}")
        if channel.is_closed:
            return NotConnected(f"the connection to {address} was lost at once")
        self._channels[address] = channel
        if self._on_connected is not None:
            self._on_connected()
        return channel

    def _tls_options(self) -> dict[str, Any]:
        if self._tls is None:
            return {}
        return {"ssl": self._tls.newest(), "ssl_shutdown_timeout": SHUTDOWN_S}

    def _lost(self, address: str) -> None:
        if self._on_lost is not None and not self._closed:
            self._on_lost(address)
