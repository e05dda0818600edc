"""Where the processes of a run live: each in a network of its own, or all on the loopback.

On the loopback a relay stands between any two (``tests/chaos/links.py``). In namespaces
(``tests/chaos/namespaces.py``) every process has an address of its own, and the kernel drops what
is cut; that takes a Linux where namespaces, bridges and veth pairs may be made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from tests.chaos.links import Link

#: Where something listens now, or None.
Target = Callable[[], str | None]


class Cuttable(Protocol):
    """The way from one process to another."""

    seen_as: Mapping[bytes, bytes]
    """What stands in answers, and what the near process shall see instead."""

    @property
    def address(self) -> str:
        """What the near process connects to."""

    async def begin(self, action: str, *, delay_s: float = 0.0) -> None:
        """One of ``schedule.LINK_ACTIONS``, from now on until ``heal``."""

    async def heal(self) -> None:
        """All goes again."""

    async def close(self) -> None:
        """End it."""


class Network(Protocol):
    """Places for processes."""

    @property
    def about(self) -> dict[str, Any]:
        """For the report."""

    def address(self, host: str) -> str:
        """The IP address of *host*, such as ``proxy 0``; it is made if there is none yet."""

    def command(self, host: str) -> Sequence[str]:
        """What the command of a process on *host* begins with."""

    def port(self, wanted: int) -> int:
        """*wanted* where each host has ports of its own, else 0: any."""

    def visit(self, host: str) -> AbstractContextManager[None]:
        """Inside, the calling thread is on *host*: its loopback is that of *host*."""

    async def link(self, near: str, far: str, target: Target) -> Cuttable:
        """The way from *near* to what listens at ``target()`` on *far*."""


@dataclass(frozen=True, slots=True)
class Loopback:
    """All processes share 127.0.0.1. *why*: what kept them from having networks of their own."""

    why: str = "not asked for"

    @property
    def about(self) -> dict[str, Any]:
        """For the report."""
        return {"network": "relays on the loopback", "why": self.why}

    def address(self, host: str) -> str:
        """The same for all."""
        return "127.0.0.1"

    def command(self, host: str) -> Sequence[str]:
        """Nothing is needed."""
        return ()

    def port(self, wanted: int) -> int:
        """Any free one."""
        return 0

    def visit(self, host: str) -> AbstractContextManager[None]:
        """They are all there."""
        return nullcontext()

    async def link(self, near: str, far: str, target: Target) -> Cuttable:
        """A relay."""
        link = Link(f"{near} to {far}", target)
        await link.open()
        return link
