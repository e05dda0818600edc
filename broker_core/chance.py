"""Randomness, process id and machine address, replaceable by ``use_source``.

All code reads them here, so that a simulation can repeat a run exactly.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager


class System:
    """The operating system's identity and Python's random generator."""

    def random(self) -> float:
        """Return a random number from 0 up to, but not including, 1."""
        return random.random()

    def token(self, size: int) -> bytes:
        """Return *size* unpredictable bytes."""
        return os.urandom(size)

    def process_id(self) -> int:
        """Return the id of this process; it changes after a fork."""
        return os.getpid()

    def address(self) -> str:
        """Return the IP address to which this machine's own name resolves."""
        try:
            return socket.gethostbyname(socket.gethostname())
        except OSError:
            return "127.0.0.1"


_source: System = System()


def number_below(limit: int) -> int:
    """Return a random whole number from 0 up to, but not including, *limit*."""
    return int(_source.random() * limit)


def between(least: float, most: float) -> float:
    """Return a random number between *least* and *most*."""
    return least + (most - least) * _source.random()


def token(size: int) -> bytes:
    """Return *size* unpredictable bytes."""
    return _source.token(size)


def process_id() -> int:
    """Return the id of this process on its machine; it changes after a fork."""
    return _source.process_id()


def machine_address() -> str:
    """Return the IP address to which this machine's own name resolves."""
    return _source.address()


@contextmanager
def use_source(source: System) -> Iterator[None]:
    """Use *source* instead of the system, in the whole interpreter, while the context is open."""
    global _source
    before, _source = _source, source
    try:
        yield
    finally:
        _source = before
