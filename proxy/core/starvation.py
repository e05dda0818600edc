"""Whether clients of a group wait in vain: then its queues are read on past stuck jobs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

#: A client that had to wait counts for so long: clients pull again and again.
_LATELY_NS = 1_000_000_000
#: A queue with so many ready jobs is read on for nobody.
READ_AHEAD = 512


@dataclass(slots=True)
class Starvation:
    """When a client of one group waited last with nothing ready for it."""

    _last_ns: int | None = None

    def note(self, now_ns: int) -> bool:
        """A client waits with nothing ready; True if none did lately."""
        before = self.lately(now_ns)
        self._last_ns = now_ns
        return not before

    def lately(self, now_ns: int) -> bool:
        """True if a client waited a moment ago."""
        return self._last_ns is not None and now_ns - self._last_ns < _LATELY_NS


#: A queue's oldest messages are watched for so long.
PATIENCE_NS = 200_000_000
#: What is read past a full window costs two reads: nothing is, if all in it ends in so long anyway.
_SOON_NS = 5_000_000_000


@dataclass(slots=True)
class Patience:
    """Whether the full window of one queue is read past for clients that wait in vain. Not while
    its oldest unfinished offset moves so fast that all that was read ends soon: then what stands
    behind waits for a hot key's own messages, and is read soon enough.
    """

    _since_ns: int | None = None
    _oldest: int = 0
    _over: bool = False

    def over(self, *, in_vain: bool, oldest: int, position: int, now_ns: int) -> bool:
        """True if it is read past: they wait *in_vain*, and what has to end first does not end
        soon. *oldest* is the lowest unfinished offset, *position* the next to be read.
        """
        if not in_vain:
            self._since_ns, self._over = None, False
        elif self._since_ns is None:
            self._since_ns, self._oldest = now_ns, oldest
        elif (passed_ns := now_ns - self._since_ns) >= PATIENCE_NS:
            ends = (oldest - self._oldest) * _SOON_NS > (position - oldest) * passed_ns
            self._since_ns, self._oldest, self._over = now_ns, oldest, not ends
        return self._over
