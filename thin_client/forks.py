"""Reset of clients in a child process of ``os.fork``.

A fork copies sockets, locks and names: two processes would read one stream of answers, a lock may
be held by a thread that does not exist, and two clients would use one name. Objects that own any of
these register here; in the child their ``forked`` method runs before any other code.
"""

from __future__ import annotations

import os
import weakref
from asyncio.trsock import TransportSocket
from typing import Protocol


class Inherited(Protocol):
    """An object that a child process has to reset."""

    def forked(self) -> None:
        """Drop the parent's resources without sending or closing anything that both share."""


_registered: weakref.WeakSet[Inherited] = weakref.WeakSet()


def register(each: Inherited) -> None:
    """Call ``each.forked`` in child processes while *each* is referenced elsewhere."""
    _registered.add(each)


def release_socket(inherited: object) -> None:
    """Close the socket of a transport in a child process, or of a closed loop.

    The file descriptor is redirected to the null device, so that a later close by the transport
    does not close another file. uvloop's sockets are kept: once closed they still return a
    descriptor, which may be another file's.
    """
    number = inherited.fileno() if isinstance(inherited, TransportSocket) else -1
    if number >= 0:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, number, inheritable=False)
        os.close(null)


def _in_child() -> None:
    """Reset every object, also if one fails: the interpreter prints what is raised here."""
    clients, failures = list(_registered), list[Exception]()
    for each in clients:
        try:
            each.forked()
        except Exception as error:
            failures.append(error)
    if failures:
        raise RuntimeError(
            f"{len(failures)} of {len(clients)} clients still share sockets with the process that"
            f" forked: {failures[0]}"
        ) from failures[0]


if hasattr(os, "register_at_fork"):  # missing on Windows
    os.register_at_fork(after_in_child=_in_child)
