"""What a server makes of a connection that it has no room for."""

from __future__ import annotations

import asyncio
from typing import cast


class RefusedConnection(asyncio.Protocol):
    """Ends it as soon as it is there."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """One too many."""
        cast(asyncio.Transport, transport).abort()
