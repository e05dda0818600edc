"""What all checks of one queue and group share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from proxy.history.findings import Findings

#: Flags of a message.
DELIVERED, FINISHED, STARTED, HANDLED = 1, 2, 4, 8

_PAGE = 1024  # offsets


class OffsetFlags:
    """A byte of flags for each offset, in pages: a queue may begin anywhere. All O(1)."""

    __slots__ = ("_pages",)

    def __init__(self) -> None:
        self._pages: dict[int, bytearray] = {}

    def get(self, offset: int) -> int:
        """Flags of *offset*; 0 if none was ever set."""
        page = self._pages.get(offset // _PAGE)
        return 0 if page is None else page[offset % _PAGE]

    def add(self, offset: int, flags: int) -> None:
        """Set *flags* beside those that are set."""
        page = self._pages.get(offset // _PAGE)
        if page is None:
            page = self._pages[offset // _PAGE] = bytearray(_PAGE)
        page[offset % _PAGE] |= flags


@dataclass(slots=True, eq=False)
class LaneFacts:
    """One queue as one group sees it. ``flags`` says what became of each of its messages."""

    group: str
    topic: str
    queue: str
    findings: Findings
    epoch: int = -1
    """Newest ownership period."""
    judged_by_proxy: bool = False
    """A proxy's events of this queue are in the histories; else handlers are all we have."""
    begin: int = 0
    """Where the group began to read: what lies below was never meant for it."""
    committed: int = 0
    flags: OffsetFlags = field(default_factory=OffsetFlags)
    excused: set[tuple[int, int]] = field(default_factory=set)
    """(offset, lease) of leases that ended without their client's doing."""

    def violation(self, invariant: str, text: str) -> None:
        """Report that *invariant* did not hold in this queue."""
        self.findings.add(invariant, f"group {self.group}, {self.topic}/{self.queue}: {text}")

    def done(self, offset: int) -> bool:
        """True if the message came to an end: finished, or without a proxy's word handled."""
        wanted = FINISHED if self.judged_by_proxy else HANDLED
        return offset < self.begin or bool(self.flags.get(offset) & wanted)


def lower(offsets: set[int] | None, than: int) -> Iterator[int]:
    """Those of *offsets* below *than*, lowest first."""
    return iter(sorted(offset for offset in offsets or () if offset < than))
