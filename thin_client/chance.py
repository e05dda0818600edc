"""The client's randomness: names that are unique, pauses that spread.

It comes from the system unless ``use_source`` was told of another source, as a simulation does.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: The highest number that a request may have; 0 follows.
MAX_REQUEST_NUMBER = (1 << 31) - 1

_random: Callable[[], float] = random.random
_token: Callable[[int], bytes] = secrets.token_bytes


def fraction() -> float:
    """A random number from 0 up to 1."""
    return _random()


def request_number() -> int:
    """Where a connection begins to number its requests: from 0 up to 2³¹ - 1."""
    return int(_random() * MAX_REQUEST_NUMBER)


def token_hex(size: int) -> str:
    """*size* unpredictable bytes as hex digits."""
    return _token(size).hex()


@contextmanager
def use_source(random: Callable[[], float], token: Callable[[int], bytes]) -> Iterator[None]:
    """Take these instead of the system, in all of the interpreter, until the end."""
    global _random, _token
    before = _random, _token
    _random, _token = random, token
    try:
        yield
    finally:
        _random, _token = before
