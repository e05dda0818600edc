"""A nameserver that stops: its clients ask the next one."""

from __future__ import annotations

import asyncio

import pytest

from broker_core.client.connection_pool import ConnectionPool
from broker_core.client.routes import RouteCache
from broker_core.errors import ConnectionLost
from broker_core.nameserver.server import NameServer


async def test_the_next_nameserver_is_asked() -> None:
    stopping, other = NameServer(), NameServer()
    await stopping.start()
    await other.start()
    pool = ConnectionPool()
    routes = RouteCache([stopping.address, other.address], pool, timeout_s=5)
    await routes.clusters()
    await stopping.server.refuse()
    assert (await routes.clusters()).brokers == {}
    await other.server.refuse()
    with pytest.raises(ConnectionLost, match="no nameserver of"):
        await routes.clusters()
    await asyncio.gather(pool.close(), stopping.close(), other.close())
