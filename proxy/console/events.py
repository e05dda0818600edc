"""Server-sent events for open pages: the whole state every few seconds.

A page that reads too slowly is disconnected, and connects again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import structlog

from broker_core.tasks import cancel_and_wait, spawn
from proxy.errors import Unavailable

#: Limits: connected pages, and events queued for one page.
MOST_READERS = 64
MOST_WAITING = 4
EVERY_S = 2.0

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
    """Sends the result of *look* to all readers every *every_s*; idle without readers.

    ``dropped`` counts readers that were too slow, ``refused`` those over the limit.
    """

    def __init__(
        self,
        look: Callable[[], bytes],
        *,
        every_s: float = EVERY_S,
        on_slow: Callable[[], None] = lambda: None,
    ) -> None:
        """*on_slow* is called once for each reader that is dropped."""
        self._look = look
        self._every_s = every_s
        self._on_slow = on_slow
        self._readers: set[Reader] = set()
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
        """Return a new reader that starts with the current state.

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
        reader.put(b"retry: 3000\n\n" + self._event())
        self._readers.add(reader)
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

    async def _tell(self) -> None:
        while self._readers:
            await asyncio.sleep(self._every_s)
            try:
                self.tell()
            except Exception:  # a bug; the next event may succeed
                _log.exception("sending an event to console pages failed")

    def tell(self) -> None:
        """Send the state to all readers now."""
        if not self._readers:
            return
        piece = self._event()
        for reader in [each for each in self._readers if not each.put(piece)]:
            self._readers.discard(reader)
            self.dropped += 1
            reader.end()
            reader.drop()
            self._on_slow()

    def _event(self) -> bytes:
        self._number += 1
        return event("overview", self._number, self._look())
