"""Connections in memory: latency, one-way cuts, resets and refusals, in virtual time.

A connection is a pair of transports. Data written at one end arrive at the other in order, after
the latency of the link between their processes. While a direction of the link is cut, data wait as
in TCP: they arrive once it is healed, and a connection whose data stay unconfirmed for ten seconds
is lost at the sender's end. The other end finds out when its next data are answered with a reset,
or from its keep-alive.
"""

from __future__ import annotations

import asyncio
import contextvars
import errno
import ipaddress
import random
import socket
from asyncio import sslproto
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast

from testkit.simulation.process import PROCESS, SimulatedProcess, State

_MS = 1_000_000
_LEAST_LATENCY_NS = 40_000
#: Kernel buffers at both ends of a connection that is not read.
_KERNEL_BYTES = 256 * 1024
_HIGH_WATER = 64 * 1024
#: Most bytes in one call of a protocol: a segment of the loopback.
_PIECE_BYTES = 64 * 1024
#: TCP_USER_TIMEOUT of the product's connections, and keep-alive of listening ends.
_UNCONFIRMED_NS = 10_000 * _MS
_KEEP_ALIVE_NS = 25_000 * _MS
_CONNECT_NS = 120_000 * _MS
_RETRY_NS = 1_000 * _MS
_LOOPBACK = "127.0.0.1"
_FIRST_PORT = 20_000


class Timer(Protocol):
    """A callback at a given time."""

    def cancel(self) -> None:
        """Cancel the call."""


class VirtualTime(Protocol):
    """Event loop methods that connections use."""

    @property
    def now_ns(self) -> int:
        """Return the virtual time."""

    def call_at_ns(
        self,
        at_ns: int,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Timer:
        """Call *callback* at exactly that time."""

    def call_soon(
        self,
        callback: Callable[..., object],
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> Timer:
        """Call *callback* in the next iteration."""

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of the loop."""


class _Opening(asyncio.Protocol):
    """Records the transport over TLS once it is open, and hands it to *protocol*."""

    transport: Any = None

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.set_protocol(self._protocol)
        self._protocol.connection_made(transport)


class Network:
    """All listeners and connections of one loop."""

    def __init__(self, loop: VirtualTime, chance: random.Random) -> None:
        self._loop = loop
        self._chance = chance
        self._ports = _FIRST_PORT
        self._listeners: dict[tuple[str, int], Server] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._delays: dict[tuple[str, str], int] = {}
        self._steady_ns: int | None = None
        self._promised: dict[int, tuple[str, int]] = {}  # by descriptor: target of a sock_connect
        self._held: dict[Transport, None] = {}
        self._dark: set[str] = set()  # hosts without power
        self._orphans: dict[str, list[Transport]] = {}  # by host: peers of silent deaths
        self.open: dict[Transport, None] = {}
        """Open transports, in order."""

    # ---- faults ---------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """Block data from *source* to *target* (names of processes) until the cut is healed."""
        self._cuts.add((source, target))

    def heal(self, source: str, target: str) -> None:
        """End a cut; waiting data arrive."""
        self._cuts.discard((source, target))
        for transport in list(self._held):
            if not transport.is_cut:
                del self._held[transport]
                transport.send_held()

    def delay(self, source: str, target: str, by_ns: int) -> None:
        """Delay data from *source* to *target* by *by_ns*; 0 ends it."""
        if by_ns:
            self._delays[source, target] = by_ns
        else:
            self._delays.pop((source, target), None)

    def steady(self, latency_ns: int) -> None:
        """Give all data this latency from now on, without delays and late ones."""
        self._steady_ns = latency_ns

    def reset(self, one: str, other: str) -> int:
        """Reset all connections between two processes; data in flight are lost.

        Return their number.
        """
        hit = [each for each in self.open if {each.owner_name, each.peer_name} == {one, other}]
        for transport in hit:
            transport.lose(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        return len(hit)

    def end_of(self, process: SimulatedProcess, *, silent: bool) -> None:
        """Close the connections of *process*, which is dead; with *silent*, peers find out by
        timeout.
        """
        for key, server in list(self._listeners.items()):
            if server.process is process:
                del self._listeners[key]
        if silent:
            self._dark.add(process.host)
        for transport in [each for each in self.open if each.process is process]:
            transport.die(silent=silent)
            if silent:
                self._orphans.setdefault(process.host, []).append(transport.peer)

    def host_is_back(self, host: str) -> None:
        """Power on a machine: it resets connections that it does not know."""
        self._dark.discard(host)
        for transport in self._orphans.pop(host, []):
            at_ns = self._loop.now_ns + self.latency_ns(None, None) * 3
            self._loop.call_at_ns(at_ns, _reset, transport, context=transport._context)

    # ---- addresses ------------------------------------------------------------------------------

    def resolve(self, host: Any) -> str:
        """Return the address of *host*. Raises socket.gaierror."""
        if host in (None, "", "localhost", "::1", "::"):
            return _LOOPBACK if host in ("localhost", "::1") else "0.0.0.0"
        text = host.decode() if isinstance(host, bytes) else str(host)
        try:
            ipaddress.ip_address(text)
        except ValueError:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known") from None
        return text

    # ---- listening and connecting ---------------------------------------------------------------

    async def listen(
        self,
        protocol_factory: Callable[[], Any],
        host: Any = None,
        port: int | None = None,
        *,
        sock: Any = None,
        ssl: Any = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
        start_serving: bool = True,
        **_others: Any,
    ) -> Server:
        """Replace ``loop.create_server``."""
        if sock is not None:
            raise NotImplementedError("a simulated server listens at an address, not on a socket")
        hosts = host if isinstance(host, list | tuple) else [host]
        address = self.resolve(hosts[0])
        if address == "0.0.0.0" and (process := PROCESS.get()) is not None:
            address = process.host
        number = port or self._free_port()
        if (address, number) in self._listeners:
            raise OSError(
                errno.EADDRINUSE,
                f"error while attempting to bind on address ('{address}', {number}):"
                " address already in use",
            )
        tls = None
        if ssl is not None:
            tls = (ssl, ssl_handshake_timeout, ssl_shutdown_timeout)
        server = Server(self, protocol_factory, address, number, tls)
        if start_serving:
            self._listeners[address, number] = server
        return server

    def forget(self, server: Server) -> None:
        """Remove a listener."""
        if self._listeners.get(server.address) is server:
            del self._listeners[server.address]

    def serve(self, server: Server) -> None:
        """Add a listener."""
        self._listeners[server.address] = server

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Remember the target of *sock*; ``create_connection`` makes the connection."""
        target = (self.resolve(address[0]), int(address[1]))
        await self._reach(target)
        self._promised[sock.fileno()] = target

    async def connect(
        self,
        protocol_factory: Callable[[], Any],
        host: Any = None,
        port: int | None = None,
        *,
        sock: socket.socket | None = None,
        ssl: Any = None,
        server_hostname: str | None = None,
        ssl_handshake_timeout: float | None = None,
        ssl_shutdown_timeout: float | None = None,
        **_others: Any,
    ) -> tuple[Any, Any]:
        """Replace ``loop.create_connection``."""
        if sock is not None:
            target = self._promised.pop(sock.fileno())
            sock.close()
        else:
            target = (self.resolve(host), int(port or 0))
        server = await self._reach(target)
        loop, process = self._loop, PROCESS.get()
        own = (_LOOPBACK if process is None else process.host, self._free_port())
        near = Transport(self, process, sockname=own, peername=target, server=None)
        far = Transport(self, server.process, sockname=target, peername=own, server=server)
        near.peer, far.peer = far, near
        protocol = protocol_factory()
        waiter = None
        server.accept(far)
        if ssl:
            waiter = loop.create_future()
            opening = _Opening(protocol)
            layer = sslproto.SSLProtocol(
                asyncio.get_running_loop(),
                opening,
                _client_context(ssl),
                waiter,
                False,
                server_hostname or (host if isinstance(host, str) else None),
                ssl_handshake_timeout=ssl_handshake_timeout,
                ssl_shutdown_timeout=ssl_shutdown_timeout,
            )
            near.begin(layer)
            try:
                await waiter
            except BaseException:
                near.abort()
                raise
            return opening.transport, protocol
        near.begin(protocol)
        made = loop.create_future()
        loop.call_soon(_set, made)
        await made
        return near, protocol

    async def _reach(self, target: tuple[str, int]) -> Server:
        """Return the listener at *target*, after a round trip. Raises OSError."""
        process = PROCESS.get()
        began_ns = self._loop.now_ns
        while True:
            server = self._listener(target)
            if server is not None and not self._cut_off(process, server.process):
                await self._wait(self.latency_ns(process, server.process) * 2)
                if self._listener(target) is server:
                    return server
                continue
            if server is None and target[0] not in self._dark:
                await self._wait(self.latency_ns(None, None) * 2)
                raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {target}")
            if self._loop.now_ns - began_ns > _CONNECT_NS:
                raise TimeoutError(errno.ETIMEDOUT, f"Connect call failed {target}")
            await self._wait(_RETRY_NS)

    def _listener(self, target: tuple[str, int]) -> Server | None:
        return self._listeners.get(target) or self._listeners.get(("0.0.0.0", target[1]))

    def _cut_off(self, one: SimulatedProcess | None, other: SimulatedProcess | None) -> bool:
        if one is None or other is None:
            return False
        cuts = self._cuts
        return bool(cuts) and ((one.name, other.name) in cuts or (other.name, one.name) in cuts)

    async def _wait(self, ns: int) -> None:
        waiter = self._loop.create_future()
        timer = self._loop.call_at_ns(self._loop.now_ns + ns, _set, waiter)
        try:
            await waiter
        finally:
            timer.cancel()

    def _free_port(self) -> int:
        self._ports += 1
        return self._ports

    # ---- for transports -------------------------------------------------------------------------

    def latency_ns(self, source: SimulatedProcess | None, target: SimulatedProcess | None) -> int:
        """Return the current latency of data."""
        if self._steady_ns is not None:
            return self._steady_ns
        chance = self._chance.random()
        spread_ns = 200_000 if chance < 0.97 else 4_000_000
        latency_ns = _LEAST_LATENCY_NS + int(chance * spread_ns)
        if self._delays and source is not None and target is not None:
            latency_ns += self._delays.get((source.name, target.name), 0)
        return latency_ns

    def is_cut(self, source: str | None, target: str | None) -> bool:
        """Return whether *source* is cut from *target* now."""
        return bool(self._cuts) and (source, target) in self._cuts

    def is_dark(self, process: SimulatedProcess | None) -> bool:
        """Return whether the machine of *process* has no power."""
        return process is not None and process.host in self._dark

    def hold(self, transport: Transport) -> None:
        """Notify *transport* when its cut is healed."""
        self._held[transport] = None


class ServerSocket:
    """The socket attributes of a server."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.family = socket.AF_INET

    def getsockname(self) -> tuple[str, int]:
        return self.server.address


class Server(asyncio.AbstractServer):
    """Replaces asyncio's own server."""

    def __init__(
        self,
        network: Network,
        protocol_factory: Callable[[], Any],
        host: str,
        port: int,
        tls: tuple[Any, float | None, float | None] | None,
    ) -> None:
        self.address = (host, port)
        self.process = PROCESS.get()
        self.context = contextvars.copy_context()
        self._network = network
        self._factory = protocol_factory
        self._tls = tls
        self._closed = False

    @property
    def sockets(self) -> tuple[Any, ...]:
        """Its one socket, until it is closed."""
        return () if self._closed else (ServerSocket(self),)

    def accept(self, transport: Transport) -> None:
        """Serve a new connection, as soon as the process runs."""
        self._network._loop.call_soon(self._begin, transport, context=self.context)

    def _begin(self, transport: Transport) -> None:
        if transport.is_closing():
            return
        if self._closed:
            raise RuntimeError(
                f"the listener at {self.address} was closed between the acceptance of a connection"
                " and its opening: asyncio would lose it"
            )
        protocol = self._factory()
        if self._tls is not None:
            context, handshake_s, shutdown_s = self._tls
            protocol = sslproto.SSLProtocol(
                asyncio.get_running_loop(),
                protocol,
                context,
                None,
                True,
                ssl_handshake_timeout=handshake_s,
                ssl_shutdown_timeout=shutdown_s,
            )
        transport.begin(protocol)

    def close(self) -> None:
        self._closed = True
        self._network.forget(self)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return cast(asyncio.AbstractEventLoop, self._network._loop)

    def is_serving(self) -> bool:
        return not self._closed

    async def start_serving(self) -> None:
        self._network.serve(self)

    async def serve_forever(self) -> None:
        await self.start_serving()
        await self._network._loop.create_future()

    async def wait_closed(self) -> None:
        return None

    def close_clients(self) -> None:
        """Close its connections."""

    def abort_clients(self) -> None:
        """Abort its connections."""


class Transport(asyncio.Transport):
    """One end of a connection."""

    peer: Transport

    def __init__(
        self,
        network: Network,
        process: SimulatedProcess | None,
        *,
        sockname: tuple[str, int],
        peername: tuple[str, int],
        server: Server | None,
    ) -> None:
        super().__init__({"sockname": sockname, "peername": peername, "socket": None})
        self.process = process
        self._network = network
        self._loop = network._loop
        self._context = contextvars.copy_context() if server is None else server.context
        self._protocol: Any = None
        self._buffered_protocol = False
        self._last_arrival_ns = 0
        self._unread: deque[bytes | None] = deque()  # arrived here, not yet given to the protocol
        self._to_send: deque[bytes | None] = deque()  # held back by a cut; None: the end
        self._under_way = 0  # bytes written here and not yet read by the peer
        self._low, self._high = _HIGH_WATER // 4, _HIGH_WATER
        self._writing_paused = False
        self._reading = True
        self._closing = self._lost = self._eof_sent = self._eof_seen = False
        self._unknown_here = False  # lost without the peer's knowledge
        self._check: Timer | None = None
        network.open[self] = None

    def __repr__(self) -> str:
        return f"<Transport {self.owner_name} to {self.peer_name} {self._extra['peername']}>"

    @property
    def owner_name(self) -> str | None:
        """Name of the process at this end."""
        return None if self.process is None else self.process.name

    @property
    def peer_name(self) -> str | None:
        """Name of the process at the other end."""
        return self.peer.owner_name

    @property
    def is_cut(self) -> bool:
        """Whether this end is cut from the peer now."""
        return self._network.is_cut(self.owner_name, self.peer_name)

    # ---- for protocols and the network ----------------------------------------------------------

    def begin(self, protocol: Any) -> None:
        """Report the connection to *protocol*, then deliver the data that arrived."""
        self.set_protocol(protocol)
        self._loop.call_soon(self._made, context=self._context)

    def _made(self) -> None:
        if self._lost:
            return
        self._protocol.connection_made(self)
        self._began = True
        self._give()

    _began = False

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol
        self._buffered_protocol = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> Any:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading and not self._closing:
            self._reading = True
            self._loop.call_soon(self._give, context=self._context)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH_WATER if low is None else 4 * low
        self._high, self._low = high, high // 4 if low is None else low
        self._pause_writing_if_full()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return max(0, self._under_way - _KERNEL_BYTES)

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: Any) -> None:
        if not data or self._closing or self._lost:
            return  # asyncio too drops data written to a closed transport
        if self._eof_sent:
            raise RuntimeError("Cannot call write() after write_eof()")
        content = bytes(data)
        self._under_way += len(content)
        self._send(content)
        self._pause_writing_if_full()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if not self._eof_sent and not self._closing:
            self._eof_sent = True
            self._send(None)

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if not self._eof_sent:
            self._eof_sent = True
            self._send(None)
        if not self.get_write_buffer_size():
            self._loop.call_soon(self._end, None, context=self._context)

    def abort(self) -> None:
        if self._lost:
            return
        self._closing = True
        if not self._eof_sent:
            self._eof_sent = True
            self._send(None)
        self._loop.call_soon(self._end, None, context=self._context)

    def _force_close(self, error: BaseException | None) -> None:
        """Close like asyncio's TLS after a failed handshake."""
        self.abort()

    _start_tls_compatible = True

    # ---- faults ---------------------------------------------------------------------------------

    def lose(self, error: Exception | None) -> None:
        """End the connection here, with *error*; no more data arrive."""
        if not self._lost and not self._closing:
            self._closing = True
            self._unread.clear()
            self._loop.call_soon(self._end, error, context=self._context)

    def die(self, *, silent: bool) -> None:
        """End it because its process is dead."""
        self._lost = self._closing = True
        self._network.open.pop(self, None)
        peer = self.peer
        if silent:
            at_ns = self._loop.now_ns + _KEEP_ALIVE_NS
            self._loop.call_at_ns(at_ns, _time_out, peer, context=peer._context)
            return
        at_ns = max(
            self._loop.now_ns + self._network.latency_ns(self.process, peer.process),
            self._last_arrival_ns + 1,
        )
        self._loop.call_at_ns(at_ns, _reset, peer, context=peer._context)

    # ---- data -----------------------------------------------------------------------------------

    def _send(self, content: bytes | None) -> None:
        if self._network._cuts and not self._confirms():
            self._expect_confirmation()
            if self.is_cut or self._to_send:
                self._to_send.append(content)
                self._network.hold(self)
                return
        now_ns = self._loop.now_ns
        at_ns = now_ns + self._network.latency_ns(self.process, self.peer.process)
        self._last_arrival_ns = at_ns = max(at_ns, self._last_arrival_ns + 1)
        if self.peer._unknown_here:  # the machine there answers, even without the process
            if not self._network.is_dark(self.peer.process):
                self._loop.call_at_ns(
                    at_ns + _LEAST_LATENCY_NS, _reset, self, context=self._context
                )
            return
        self._loop.call_at_ns(at_ns, self.peer._arrived, content, context=self.peer._context)

    def send_held(self) -> None:
        """Send the data that waited for the cut to be healed."""
        waiting, self._to_send = self._to_send, deque()
        if not self._lost or self._closing:
            for content in waiting:
                self._send(content)

    def _confirms(self) -> bool:
        """Return whether the peer's system can exchange packets with this end."""
        return not (self.is_cut or self.peer.is_cut)

    def _expect_confirmation(self) -> None:
        if self._check is None:
            at_ns = self._loop.now_ns + _UNCONFIRMED_NS
            self._check = self._loop.call_at_ns(at_ns, self._unconfirmed, context=self._context)

    def _unconfirmed(self) -> None:
        self._check = None
        if not self._confirms() and not self._lost:
            self.lose(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
            self._to_send.clear()
            self._unknown_here = True
            # In the peer's context: this process may end before that.
            at_ns = self._loop.now_ns + _KEEP_ALIVE_NS - _UNCONFIRMED_NS
            self._loop.call_at_ns(at_ns, _time_out, self.peer, context=self.peer._context)

    def _arrived(self, content: bytes | None) -> None:
        if self._lost or self._closing:
            if content is not None:
                self.peer._read_there(len(content))
            return
        if content is not None and len(content) > _PIECE_BYTES:
            pieces = range(0, len(content), _PIECE_BYTES)
            self._unread.extend(content[at : at + _PIECE_BYTES] for at in pieces)
            self._give()
            return
        if not self._began or not self._reading or self._unread:
            self._unread.append(content)
            return
        self._deliver(content)

    def _give(self) -> None:
        while self._unread and self._reading and not self._closing and self._began:
            self._deliver(self._unread.popleft())

    def _deliver(self, content: bytes | None) -> None:
        if content is None:
            self._eof_seen = True
            if not self._protocol.eof_received():
                self.close()
            return
        if self._buffered_protocol:
            view, at = memoryview(content), 0
            while at < len(content) and not self._closing:
                buffer = self._protocol.get_buffer(len(content) - at)
                size = min(len(buffer), len(content) - at)
                buffer[:size] = view[at : at + size]
                self._protocol.buffer_updated(size)
                at += size
        else:
            self._protocol.data_received(content)
        self.peer._read_there(len(content))

    def _read_there(self, size: int) -> None:
        self._under_way -= size
        if self._writing_paused and self.get_write_buffer_size() <= self._low:
            self._writing_paused = False
            self._loop.call_soon(self._resume_writing, context=self._context)
        if self._closing and not self._lost and not self.get_write_buffer_size():
            self._loop.call_soon(self._end, None, context=self._context)

    def _resume_writing(self) -> None:
        if not self._lost and self._protocol is not None:
            self._protocol.resume_writing()

    def _pause_writing_if_full(self) -> None:
        if not self._writing_paused and self.get_write_buffer_size() > self._high:
            self._writing_paused = True
            self._protocol.pause_writing()

    def _end(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = self._closing = True
        self._network.open.pop(self, None)
        if self._check is not None:
            self._check.cancel()
        if isinstance(error, ConnectionResetError) and not self.peer._lost:
            self.peer.lose(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        self._unread.clear()
        if self._protocol is not None and self._began:
            self._protocol.connection_lost(error)
        elif self._protocol is not None:
            self._loop.call_soon(self._protocol.connection_lost, error, context=self._context)


def _reset(transport: Transport) -> None:
    if transport.process is None or transport.process.state is not State.DEAD:
        transport.lose(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))


def _time_out(transport: Transport) -> None:
    if transport.process is None or transport.process.state is not State.DEAD:
        transport.lose(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _client_context(ssl: Any) -> Any:
    if ssl is True:
        import ssl as module

        return module.create_default_context()
    return ssl
