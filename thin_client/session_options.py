"""Options of a session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """Options of a session, immutable."""

    group: str
    #: Topics to pull; None: every topic of the group.
    topics: Sequence[str] | None
    client_id: str
    version: str
    #: Access token of every request; None: no token.
    token: str | None = None
    #: Maximum number of messages with handlers.
    concurrency: int
    #: Maximum number of messages that wait in the client.
    prefetch: int
    ack_linger_ns: int = 20_000_000
    #: Maximum number of consecutive messages of an order key in one delivery.
    max_run: int = 1
    #: Makes pull IDs unique, since successive processes may use one client ID.
    request_prefix: str = ""
