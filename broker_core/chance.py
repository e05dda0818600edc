"""The randomness of a process, and the identity that it has on its machine.

They come from the system unless ``use_source`` was told of another source, as a simulation does.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager


class System:
    """What the operating system and Python's generator give."""

    def random(self) -> float:
        """A number from 0 up to 1."""
        return random.random()

    def token(self, size: int) -> bytes:
        """*size* unpredictable bytes."""
        return os.urandom(size)

    def process_id(self) -> int:
        """Number of this process; another one after a fork."""
        return os.getpid()

    def address(self) -> str:
        """IP address of this machine, as its own name resolves."""
        try:
            return socket.gethostbyname(socket.gethostname())
        except OSError:
            return "127.0.0.1"


_source: System = System()


def number_below(limit: int) -> int:
    """A random whole number from 0 up to *limit*."""
    return int(_source.random() * limit)


def between(least: float, most: float) -> float:
    """A random number between the two."""
    return least + (most - least) * _source.random()


def token(size: int) -> bytes:
    """*size* unpredictable bytes."""
    return _source.token(size)


def process_id() -> int:
    """Number of this process on its machine; another one after a fork."""
    return _source.process_id()


def machine_address() -> str:
    """IP address of this machine, as its own name resolves."""
    return _source.address()


@contextmanager
def use_source(source: System) -> Iterator[None]:
    """Take *source* instead of the system, in all of the interpreter, until the end."""
    global _source
    before, _source = _source, source
    try:
        yield
    finally:
        _source = before
