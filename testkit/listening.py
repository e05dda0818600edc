"""End of servers made by ``asyncio.start_server``."""

from __future__ import annotations

import asyncio

from broker_core.stop_accepting import stop_accepting

#: Turns of the loop from the acceptance of a connection to the start of its callback.
_TURNS = 4


async def end_listening(server: asyncio.Server) -> None:
    """Accept nothing from now on; return when the callbacks of all accepted connections have
    begun, so that they can be closed.
    """
    stop_accepting(server)
    for _ in range(_TURNS):
        await asyncio.sleep(0)
