"""Server-sent events for open pages: the whole state every few seconds.

All pages share one look at the state. The more time a look takes, the longer is the pause after it,
so that pages never keep a proxy busy. A page that reads too slowly is disconnected, and connects
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import structlog

from broker_core.clock import now_ns
from broker_core.tasks import cancel_and_wait, spawn
from proxy.errors import Unavailable

#: Limits: connected pages, and events queued for one page.
MOST_READERS = 64
MOST_WAITING = 4
EVERY_S = 2.0
#: A pause is at least this many times as long as the look before it, up to ``LONGEST_S``, after
#: which pages would take the proxy for dead.
PAUSE, LONGEST_S = 50, 8.0
#: The same if another page waits for its first event.
_PAUSE_OF_NEW = 4

_log = structlog.get_logger("console")


def event(name: str, number: int, data: bytes) -> bytes:
    """Encode one event. *data* is JSON in one line."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, name.encode(), data)


class Reader:
    """The events of one page. Iterate over it once."""

    def __init__(self, leave: Callable[[Reader], None]) -> None:
        self._leave = leave
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue(MOST_WAITING)
        self._on_dropped: Callable[[], None] = lambda: None

    def call_if_dropped(self, callback: Callable[[], None]) -> None:
        """Set the *callback* for a page that does not keep up; it replaces an earlier one."""
        self._on_dropped = callback

    def put(self, piece: bytes) -> bool:
        """Queue *piece*; return False if the queue is full."""
        try:
            self._waiting.put_nowait(piece)
        except asyncio.QueueFull:
            return False
        return True

    def drop(self) -> None:
        """Disconnect a page that does not keep up."""
        self._on_dropped()

    def end(self) -> None:
        """End the stream and discard queued events."""
        while not self._waiting.empty():
            self._waiting.get_nowait()
        self._waiting.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while (piece := await self._waiting.get()) is not None:
                yield piece
        finally:
            self._leave(self)


class Events:
    """Sends the result of *look* to all readers every *every_s*, less often if a look takes long,
    and never without readers.

    ``dropped`` counts readers that were too slow, ``refused`` those over the limit.
    """

    def __init__(
        self,
        look: Callable[[], Awaitable[bytes]],
        *,
        every_s: float = EVERY_S,
        on_slow: Callable[[], None] = lambda: None,
    ) -> None:
        """*on_slow* is called once for each reader that is dropped."""
        self._look = look
        self._every_s = every_s
        self._on_slow = on_slow
        self._readers: set[Reader] = set()
        self._new = asyncio.Event()  # a reader waits for its first event
        self._number = 0
        self._telling: asyncio.Task[None] | None = None
        self._closed = False
        self.dropped = 0
        self.refused = 0

    @property
    def readers(self) -> int:
        """Number of connected readers."""
        return len(self._readers)

    def read(self) -> Reader:
        """Return a new reader, whose first event is the state right now.

        Raises Unavailable if there are too many readers or the proxy is stopping.
        """
        if self._closed:
            raise Unavailable("the proxy is stopping: retry, or use another proxy")
        if len(self._readers) >= MOST_READERS:
            self.refused += 1
            raise Unavailable(
                f"{MOST_READERS} pages already read this proxy's events: close one of them"
            )
        reader = Reader(self._readers.discard)
        reader.put(b"retry: 3000\n\n")
        self._readers.add(reader)
        self._new.set()
        if self._telling is None or self._telling.done():
            self._telling = spawn(self._tell(), name="console events")
        return reader

    async def close(self) -> None:
        """End all streams and refuse new ones."""
        self._closed = True
        await cancel_and_wait(self._telling)
        for reader in list(self._readers):
            reader.end()
        self._readers.clear()

    async def tell(self) -> None:
        """Send the state to all readers now."""
        self._new.clear()
        state = await self._look()
        self._number += 1
        piece = event("overview", self._number, state)
        for reader in [each for each in self._readers if not each.put(piece)]:
            self._readers.discard(reader)
            self.dropped += 1
            reader.end()
            reader.drop()
            self._on_slow()

    async def _tell(self) -> None:
        while self._readers:
            began_ns = now_ns()
            try:
                await self.tell()
            except Exception:  # a bug; the next event may succeed
                _log.exception("sending an event to console pages failed")
            took_s = (now_ns() - began_ns) / 1e9
            pause = pause_s(took_s, every_s=self._every_s)
            at_least = min(took_s * _PAUSE_OF_NEW, pause)
            await asyncio.sleep(at_least)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause - at_least):
                    await self._new.wait()


def pause_s(took_s: float, *, every_s: float = EVERY_S) -> float:
    """Return the pause after a look that took *took_s*."""
    return max(every_s, min(took_s * PAUSE, LONGEST_S))
