"""Options of a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """Options of a session, set once."""

    group: str
    #: None: any topic of the group.
    topics: Sequence[str] | None
    client_id: str
    version: str
    #: Shown with every request; None: none.
    token: str | None = None
    #: Messages with handlers at most.
    concurrency: int
    #: Messages that wait here beside them at most.
    prefetch: int
    ack_linger_ns: int = 20_000_000
    #: Consecutive messages of an order key that may come together.
    max_run: int = 1
    #: Makes the ids of pulls unique: processes may share a client id, one after the other.
    request_prefix: str = ""
