"""The protocol of a connection that exceeds a server's limit: close it."""

from __future__ import annotations

import asyncio
from typing import cast


class RefusedConnection(asyncio.Protocol):
    """Closes the connection as soon as it is made."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Close the connection."""
        cast(asyncio.Transport, transport).abort()
