"""Requests to a broker by name: finds its address, limits the time, and raises errors."""

from __future__ import annotations

import asyncio
from collections.abc import Container

from broker_core.client.connection_pool import ConnectionPool
from broker_core.client.routes import RouteCache
from broker_core.clock import now_ns
from broker_core.errors import (
    BrokerError,
    ConnectionLost,
    NotConnected,
    NotSentInTime,
    RequestTimeout,
)
from broker_core.remoting.codes import RequestCode, ResponseCode, request_name
from broker_core.remoting.command import RemotingCommand

_SUCCESS = frozenset({int(ResponseCode.SUCCESS)})


class BrokerRequests:
    """Sends requests to the masters of brokers."""

    def __init__(self, pool: ConnectionPool, routes: RouteCache, *, timeout_s: float) -> None:
        """Send over *pool*; *timeout_s* is the default for requests without one."""
        self._pool = pool
        self._routes = routes
        self._timeout_s = timeout_s

    async def ask(
        self,
        broker: str,
        code: RequestCode,
        ext: dict[str, str] | None = None,
        *,
        body: bytes = b"",
        ok: Container[int] = _SUCCESS,
        timeout_s: float | None = None,
    ) -> RemotingCommand:
        """Return the answer if its code is in *ok*, otherwise raise BrokerError with code and
        remark.

        Also raises ConnectionLost or RequestTimeout, which are ``unsent`` if the broker was not
        found or not reached; *timeout_s* includes both.
        """
        left_s = self._timeout_s if timeout_s is None else timeout_s
        address = self._routes.known_master(broker)
        if address is None:
            started_ns = now_ns()
            try:
                async with asyncio.timeout(left_s):
                    address = await self._routes.find_master(broker)
            except TimeoutError:
                raise NotSentInTime(
                    f"{request_name(code)}: no nameserver returned {broker} within {left_s:.3g} s"
                ) from None
            except NotConnected:
                raise
            except ConnectionLost as error:  # of a nameserver
                raise NotConnected(f"{request_name(code)}: {error}") from None
            left_s -= (now_ns() - started_ns) / 1e9
        command = RemotingCommand(code, ext={} if ext is None else ext, body=body)
        try:
            answer = await self._pool.request(address, command, timeout_s=left_s)
        except ConnectionLost:
            self._routes.doubt(broker)
            raise
        except RequestTimeout:
            self._routes.doubt_silent(broker)
            raise
        if answer.code not in ok:
            refused = BrokerError(answer.code, answer.remark or "", request=request_name(code))
            if refused.says_not_master or refused.says_stopping:
                self._routes.doubt(broker)
            elif refused.code == ResponseCode.SERVICE_NOT_AVAILABLE:
                # So a former master of Apache RocketMQ refuses to store, without saying why.
                self._routes.doubt_silent(broker)
            raise refused
        return answer
