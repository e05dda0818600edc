"""Writes a topic's messages to Redis with the commands in its settings.

Imported only if a topic has such an action: redis is an extra. An attempt uses one connection of
the pool; the library's own retries are disabled, because the lane retries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redis.asyncio import (
    Connection,
    ConnectionPool,
    Redis,
    SSLConnection,
    UnixDomainSocketConnection,
)
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    ClusterError,
    ConnectionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
)

from proxy.actions.expression import EvaluationFailed
from proxy.actions.template import Template, compile_template
from proxy.delivery.deliverer import ACKED, Delivery, Pace, TargetDown, Verdict, failed
from proxy.delivery.document import document_of
from proxy.settings.delivery import DELIVERED
from proxy.settings.sinks.redis import RedisSettings, password_of

#: The server refuses all writes.
_DOWN = (ConnectionError, ClusterError, OutOfMemoryError, ReadOnlyError)
#: The same, without an exception class in the library.
_DOWN_WORDS = ("MISCONF", "NOREPLICAS", "NOAUTH", "WRONGPASS", "LOADING", "BUSY ")


def make(settings: RedisSettings, secrets: Mapping[str, bytes]) -> RedisSink:
    """Return the deliverer of one topic. Raises ValueError if the password is missing."""
    return RedisSink(settings, password=password_of(settings, secrets))


class RedisSink:
    """The deliverer of one topic; see ``Deliverer``."""

    def __init__(self, settings: RedisSettings, *, password: str | None) -> None:
        self._settings = settings
        self._commands = [
            (name, [compile_template(text, known=DELIVERED) for text in arguments])
            for name, *arguments in settings.commands
        ]
        self._names = _names_of(self._commands)
        self._pool = _pool(settings, password=password)
        self._redis = Redis(connection_pool=self._pool)

    @property
    def pace(self) -> Pace | None:
        """None: limited only by ``concurrency``."""
        return None

    async def deliver(self, delivery: Delivery) -> Verdict:
        """Run the commands for one message."""
        try:
            document = document_of(delivery, self._names)
            commands = [
                (name, [each.render(document) for each in arguments])
                for name, arguments in self._commands
            ]
        except EvaluationFailed as error:
            return failed(f"redis: {error}", reject=True)
        try:
            await self._run(commands)
        except RedisError as error:
            if _is_down(error):
                # After a restart each pooled connection would fail once.
                await self._pool.disconnect(inuse_connections=False)
                raise TargetDown(f"redis at {self._settings.url}: {_words(error)}") from None
            return failed(f"redis: {_words(error)}")
        return ACKED

    async def _run(self, commands: list[tuple[str, list[bytes]]]) -> None:
        if len(commands) == 1:
            name, arguments = commands[0]
            await self._redis.execute_command(name, *arguments)  # type: ignore[no-untyped-call]
            return
        async with self._redis.pipeline(transaction=True) as transaction:
            for name, arguments in commands:
                transaction.execute_command(name, *arguments)
            await transaction.execute()

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()
        await self._pool.disconnect()


def _pool(settings: RedisSettings, *, password: str | None) -> ConnectionPool:
    kinds: dict[str, Any] = {"redis": Connection, "rediss": SSLConnection}
    kind = kinds.get(settings.url.partition(":")[0], UnixDomainSocketConnection)
    others: dict[str, Any] = dict(settings.place)
    if settings.tls and settings.ca_file is not None:
        others["ssl_ca_certs"] = settings.ca_file
    return ConnectionPool(
        connection_class=kind,
        max_connections=settings.concurrency + 1,
        # A server that does not even accept a connection is down; the attempt has its own limit.
        socket_connect_timeout=settings.timeout_s / 2,
        socket_timeout=None,
        username=settings.username,
        password=password,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        **others,
    )


def _names_of(commands: list[tuple[str, list[Template]]]) -> frozenset[str]:
    return frozenset(
        name for _, arguments in commands for template in arguments for name in template.names
    )


def _is_down(error: RedisError) -> bool:
    """Return whether every message would fail. Time-outs here are those of connecting."""
    if isinstance(error, (*_DOWN, TimeoutError)):
        return True
    return isinstance(error, ResponseError) and str(error).startswith(_DOWN_WORDS)


def _words(error: RedisError) -> str:
    return " ".join(str(error).split()) or type(error).__name__
