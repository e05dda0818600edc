"""Decodes large requests: authenticates first, counts elements, and limits the time of an address.

Small requests are decoded at once: they cannot create more than a few thousand objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker_core.clock import now_ns
from proxy.core.group.token_bucket import TokenBucket
from proxy.downstream.port.elements.budget import Budget
from proxy.downstream.port.frames import Call

#: Requests up to this size are small. A pull with 256 acks fits.
SMALL_BYTES = 2048
#: Raises NotAllowed or FrameError unless the call has valid credentials.
Authenticate = Callable[[Call], None]


def decode_large(
    call: Call,
    arguments: Callable[[], Any],
    *,
    authenticate: Authenticate | None,
    time: TokenBucket | None,
) -> Any:
    """Return the decoded arguments of *call*.

    Args:
        call: The call.
        arguments: Its generated ``*_args`` class.
        authenticate: Checks the credentials; None: authentication is disabled.
        time: Nanoseconds that the client's address may still use; None: no limit.

    Raises NotAllowed, TooManyElements, or FrameError for invalid bytes.
    """
    began_ns = now_ns()
    try:
        if authenticate is not None:
            authenticate(call)
        call.count(Budget())
        return call.decode(arguments())
    finally:
        if time is not None:
            time.take(now_ns() - began_ns)


def has_time(time: TokenBucket | None) -> bool:
    """Return whether an address may still send large requests now."""
    if time is None:
        return True
    time.fill(now_ns())
    return time.tokens > 0
