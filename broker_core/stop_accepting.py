"""How a listener of asyncio ends without leaking a connection.

If ``Server.close`` comes between the acceptance of a connection and its opening, asyncio fails and
forgets the connection: it stays open, unserved, until the garbage collector finds it.
"""

from __future__ import annotations

import asyncio


def stop_accepting(listener: asyncio.Server) -> None:
    """Accept no connection from now on; close *listener* once those accepted are open, which is in
    the next turn of its loop.
    """
    loop = listener.get_loop()
    for each in listener.sockets:
        loop.remove_reader(each)
    loop.call_soon(listener.close)
