"""Closing of inherited connections in a child process after ``os.fork``.

Both processes would read one stream of answers. Objects that hold a socket register themselves; in
the child their ``forked`` method is called before any other code runs.
"""

from __future__ import annotations

import os
import weakref
from asyncio.trsock import TransportSocket
from typing import Protocol


class Inherited(Protocol):
    """Something that a fork copies and that the child must not use as it is."""

    def forked(self) -> None:
        """Release what belongs to the parent process, without notifying any peer."""


_registered: weakref.WeakSet[Inherited] = weakref.WeakSet()


def register(each: Inherited) -> None:
    """Call ``forked`` of *each* in a child process, as long as *each* is referenced elsewhere."""
    _registered.add(each)


def release_socket(inherited: object) -> None:
    """Close the socket of a transport in a child process, or of a closed loop.

    The null device takes over its file descriptor, so that the transport can close it later without
    closing another file. A socket of uvloop is kept: once closed, it reports another file's
    descriptor.
    """
    number = inherited.fileno() if isinstance(inherited, TransportSocket) else -1
    if number >= 0:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, number, inheritable=False)
        os.close(null)


def _in_child() -> None:
    for each in list(_registered):
        each.forked()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_in_child)
