"""The client's randomness: unique names, and jitter for pauses.

The source is the operating system, unless ``use_source`` sets another one, as simulations do.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: The highest number of a request; 0 follows.
MAX_REQUEST_NUMBER = (1 << 31) - 1

_random: Callable[[], float] = random.random
_token: Callable[[int], bytes] = secrets.token_bytes


def fraction() -> float:
    """Return a random number in [0, 1)."""
    return _random()


def request_number() -> int:
    """Return a random number in [0, 2³¹ - 1] for a connection's first request."""
    return int(_random() * MAX_REQUEST_NUMBER)


def token_hex(size: int) -> str:
    """Return *size* unpredictable bytes as hexadecimal digits."""
    return _token(size).hex()


@contextmanager
def use_source(random: Callable[[], float], token: Callable[[int], bytes]) -> Iterator[None]:
    """Use these functions instead of the system's in the whole interpreter within the context."""
    global _random, _token
    before = _random, _token
    _random, _token = random, token
    try:
        yield
    finally:
        _random, _token = before
