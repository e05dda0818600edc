"""Connections that can be cut: a relay between two processes, frame by frame.

Both protocols use the same frames: a length of four bytes, then the payload. In answers, the
address behind a relay is replaced by the relay's, at equal length. So a proxy reaches the broker
named by the nameserver through its own link, and a client the ``home`` of its leases.

While a link is held, connections stay open and bytes wait, to arrive late, like packets that a
network loses for a while and sends again. Reset connections lose their bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from broker_core.tasks import cancel_and_wait, spawn
from testkit.listening import end_listening

_LONGEST_FRAME = 64 * 1024 * 1024
_WAITING_FRAMES = 2_000

#: Frames with their forwarding time; None is the end of the connection.
_Waiting = asyncio.Queue[tuple[float, bytes | None]]

#: The end of a connection; uvloop raises RuntimeError for a later write.
_LOST = (OSError, asyncio.IncompleteReadError, RuntimeError)


@dataclass(slots=True, eq=False)
class Link:
    """The relay from one process to another. ``target()`` returns the latter's address, or None.

    ``seen_as``: addresses in answers, and their replacements for the near process.
    """

    name: str
    target: Callable[[], str | None]
    seen_as: Mapping[bytes, bytes] = field(default_factory=dict)
    address: str = ""
    _server: asyncio.Server | None = None
    _closed: bool = False
    _action: str = ""
    _delay_s: float = 0.0
    _healed: asyncio.Event = field(default_factory=asyncio.Event)
    _pairs: set[_Pair] = field(default_factory=set)
    _lost: int = 0

    def show(self, seen_as: Mapping[bytes, bytes]) -> None:
        """Replace ``seen_as``."""
        self.seen_as = seen_as

    async def open(self) -> None:
        """Listen on a free port."""
        self._healed.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.address = f"{host}:{port}"

    async def close(self) -> None:
        """Close every connection and stop listening."""
        if self._server is not None:
            self._closed = True
            await end_listening(self._server)
        await self._abort()

    async def begin(self, action: str, *, delay_s: float = 0.0) -> None:
        """Start one of ``schedule.LINK_ACTIONS``, until ``heal``."""
        self._action, self._delay_s = action, delay_s
        self._healed.clear()
        if action == "reset":
            await self._abort()

    async def heal(self) -> None:
        """Restore the link; held bytes arrive now."""
        self._action, self._delay_s = "", 0.0
        self._healed.set()

    async def _abort(self) -> None:
        await asyncio.gather(*(pair.end() for pair in list(self._pairs)))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        near = _End(reader, writer)
        target = self.target()
        if self._action == "reset" or target is None:
            near.abort()
            return
        host, _, port = target.rpartition(":")
        try:
            far = _End(*await asyncio.open_connection(host, int(port)))
        except OSError:
            near.abort()
            return
        if self._closed:
            near.abort()
            far.abort()
            return
        pair = _Pair(self, near, far)
        self._pairs.add(pair)
        pair.start()

    # ---- for the pumps --------------------------------------------------------------------------

    @property
    def delay_s(self) -> float:
        """Return the delay of a frame that arrives now."""
        return self._delay_s

    async def passable(self, *, answers: bool) -> None:
        """Return once bytes of this direction may pass."""
        held = ("hold", "hold-answers" if answers else "hold-requests")
        while self._action in held:
            await self._healed.wait()

    def loses(self, frame: bytes, *, answers: bool) -> bytes | None:
        """Return None if the frame passes, else the part that arrives before the end."""
        if not answers or self._action != "lose-answers":
            return None
        self._lost += 1
        return frame[: len(frame) // 2] if self._lost % 2 else b""

    def seen(self, frame: bytes) -> bytes:
        """Return the frame for the near process."""
        for there, here in self.seen_as.items():
            if there in frame:
                assert len(there) == len(here), f"{there!r} cannot become {here!r} in a frame"
                frame = frame.replace(there, here)
        return frame

    def ended(self, pair: _Pair) -> None:
        """Remove an ended pair of connections."""
        self._pairs.discard(pair)


@dataclass(slots=True, eq=False)
class _End:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def abort(self) -> None:
        self.writer.transport.abort()

    async def frame(self) -> bytes:
        """Return the next frame with its length. Raises IncompleteReadError at the end."""
        head = await self.reader.readexactly(4)
        size = int.from_bytes(head, "big")
        if size > _LONGEST_FRAME:
            raise ConnectionError(f"a frame of {size} bytes")
        return head + await self.reader.readexactly(size)


@dataclass(slots=True, eq=False)
class _Pair:
    """Two joined connections. When one ends, so does the other, after bytes in flight."""

    link: Link
    near: _End
    far: _End
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def start(self) -> None:
        name = self.link.name
        self._tasks = [
            spawn(self._carry(self.near, self.far, answers=False), name=f"{name} requests"),
            spawn(self._carry(self.far, self.near, answers=True), name=f"{name} answers"),
        ]

    async def end(self) -> None:
        for end in (self.near, self.far):
            end.abort()
        await cancel_and_wait(*self._tasks)
        for end in (self.near, self.far):
            with suppress(*_LOST):
                await end.writer.wait_closed()

    async def _carry(self, source: _End, sink: _End, *, answers: bool) -> None:
        waiting: _Waiting = asyncio.Queue(_WAITING_FRAMES)
        reading = spawn(self._read(source, waiting, answers=answers), name="reading")
        try:
            with suppress(*_LOST):
                while await self._write_next(sink, waiting, answers=answers):
                    pass
        finally:
            await cancel_and_wait(reading)
            self._close()

    async def _read(self, source: _End, waiting: _Waiting, *, answers: bool) -> None:
        now = asyncio.get_running_loop().time
        try:
            while True:
                frame = await source.frame()
                if answers:
                    frame = self.link.seen(frame)
                await waiting.put((now() + self.link.delay_s, frame))
        except _LOST:
            await waiting.put((0.0, None))

    async def _write_next(self, sink: _End, waiting: _Waiting, *, answers: bool) -> bool:
        """Return False once the connection has ended."""
        due, frame = await waiting.get()
        await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))
        await self.link.passable(answers=answers)
        if frame is None:
            return False
        rest = self.link.loses(frame, answers=answers)
        sink.writer.write(frame if rest is None else rest)
        await sink.writer.drain()
        return rest is None

    def _close(self) -> None:
        self.link.ended(self)
        for end in (self.near, self.far):
            end.writer.close()
