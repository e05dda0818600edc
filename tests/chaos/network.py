"""The networks of a run's processes: a separate one each, or all on the loopback.

On the loopback there is a relay between any two processes (``tests/chaos/links.py``). With
namespaces (``tests/chaos/namespaces.py``) every process has its own address, and the kernel drops
packets of cut links; that needs a Linux that permits namespaces, bridges and veth pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from tests.chaos.links import Link

#: Returns the current address of a listener, or None.
Target = Callable[[], str | None]


class Cuttable(Protocol):
    """The link from one process to another."""

    @property
    def address(self) -> str:
        """The address to which the near process connects."""

    def show(self, seen_as: Mapping[bytes, bytes]) -> None:
        """Set the addresses in answers, and their replacements for the near process."""

    async def begin(self, action: str, *, delay_s: float = 0.0) -> None:
        """Start one of ``schedule.LINK_ACTIONS``, until ``heal``."""

    async def heal(self) -> None:
        """Restore the link."""

    async def close(self) -> None:
        """End it."""


class Network(Protocol):
    """Places for processes."""

    @property
    def about(self) -> dict[str, Any]:
        """Return details for the report."""

    def address(self, host: str) -> str:
        """Return the IP address of *host*, such as ``proxy 0``; the host is created if needed."""

    def command(self, host: str) -> Sequence[str]:
        """Return the prefix of a command on *host*."""

    def port(self, wanted: int) -> int:
        """Return *wanted* if each host has its own ports, else 0: any."""

    def visit(self, host: str) -> AbstractContextManager[None]:
        """In the context, the calling thread is on *host* and its loopback."""

    async def link(self, near: str, far: str, target: Target) -> Cuttable:
        """Return the link from *near* to the listener at ``target()`` on *far*."""


@dataclass(frozen=True, slots=True)
class Loopback:
    """All processes share 127.0.0.1. *why*: the reason for not using separate networks."""

    why: str = "not requested"

    @property
    def about(self) -> dict[str, Any]:
        """Return details for the report."""
        return {"network": "relays on the loopback", "why": self.why}

    def address(self, host: str) -> str:
        """Return the same address for all."""
        return "127.0.0.1"

    def command(self, host: str) -> Sequence[str]:
        """Return no prefix."""
        return ()

    def port(self, wanted: int) -> int:
        """Return 0: any free port."""
        return 0

    def visit(self, host: str) -> AbstractContextManager[None]:
        """Do nothing: all hosts are here."""
        return nullcontext()

    async def link(self, near: str, far: str, target: Target) -> Cuttable:
        """Return a relay."""
        link = Link(f"{near} to {far}", target)
        await link.open()
        return link
