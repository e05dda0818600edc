"""Writes a topic's messages to Redis with the commands in its settings.

Imported only if a topic has such an action: redis is an extra. An attempt uses one connection of
the pool; the library's own retries are disabled, because the lane retries.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
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
from proxy.core.delivery.receiver_access import ReceiverAccess
from proxy.core.delivery.receiver_address import ReceiverAddresses
from proxy.delivery.deliverer import ACKED, Delivery, Pace, TargetDown, Verdict, failed
from proxy.delivery.document import document_of
from proxy.delivery.resolver import AddressRefused, allowed_addresses
from proxy.settings.delivery import DELIVERED
from proxy.settings.sinks.redis import RedisSettings, password_of, servers_of

#: Names and arguments.
_Commands = list[tuple[str, list[bytes]]]

#: The server refuses all writes.
_DOWN = (ConnectionError, ClusterError, OutOfMemoryError, ReadOnlyError)
#: The same, without an exception class in the library.
_DOWN_WORDS = ("MISCONF", "NOREPLICAS", "NOAUTH", "WRONGPASS", "LOADING", "BUSY ")


def make(settings: RedisSettings, access: ReceiverAccess) -> RedisSink:
    """Return the deliverer of one topic. Raises ValueError if the password is missing or the
    address is not allowed.
    """
    password, addresses = password_of(settings, access), servers_of(settings, access)
    return RedisSink(settings, password=password, addresses=addresses)


class RedisSink:
    """The deliverer of one topic; see ``Deliverer``."""

    def __init__(
        self, settings: RedisSettings, *, password: str | None, addresses: ReceiverAddresses
    ) -> None:
        self._settings = settings
        self._commands = [
            (name, [compile_template(text, known=DELIVERED) for text in arguments])
            for name, *arguments in settings.commands
        ]
        self._names = _names_of(self._commands)
        self._pool = _pool(settings, password=password, addresses=addresses)
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
            return await self._run_or_repeat(commands)
        except RedisError as error:
            if _is_down(error):
                raise TargetDown(f"redis at {self._settings.url}: {_words(error)}") from None
            return failed(f"redis: {_words(error)}")

    async def _run_or_repeat(self, commands: _Commands) -> Verdict:
        """Run *commands*; repeat them if the connection broke but the server answers on a new one.

        Pooled connections break when the server restarts. If the second one breaks too, it is these
        commands that break it, for example because they are too long for the server or a proxy in
        front of it: then they failed, and other messages go on. Raises RedisError.
        """
        for repeated in (False, True):
            try:
                await self._run(commands)
            except RedisError as error:
                if not _is_down(error):
                    raise
                # After a restart each pooled connection would fail once.
                await self._pool.disconnect(inuse_connections=False)
                if not isinstance(error, ConnectionError):
                    raise
                await self._redis.ping()
                if repeated:
                    return failed(f"redis: the connection broke twice: {_words(error)}")
            else:
                return ACKED
        raise AssertionError("the second run returns or raises")

    async def _run(self, commands: _Commands) -> None:
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


class _Checked(Connection):
    """A connection to an address that the settings allow: the one that was checked."""

    def __init__(self, *, way: _Way, **others: Any) -> None:
        super().__init__(**others)
        self._way = way

    async def connect(self) -> None:
        """Connect to the first allowed address that accepts it. Raises redis's errors."""
        await self._way.connect(self, super().connect)


class _CheckedByTls(SSLConnection):
    """The same with TLS: the certificate has to name the host of the settings."""

    def __init__(self, *, way: _Way, **others: Any) -> None:
        super().__init__(ssl_check_hostname=True, **others)
        self._way = way

    async def connect(self) -> None:
        """Connect to the first allowed address that accepts it. Raises redis's errors."""
        await self._way.connect(self, super().connect)

    def _connection_arguments(self) -> dict[str, Any]:
        return {**super()._connection_arguments(), "server_hostname": self._way.host}


@dataclass(frozen=True, slots=True)
class _Way:
    """The way to a server: a name, which may have several addresses. All of them together get
    ``limit_s`` to accept a connection.
    """

    host: str
    port: int
    addresses: ReceiverAddresses
    limit_s: float

    async def connect(
        self, connection: Connection, connect_to: Callable[[], Awaitable[None]]
    ) -> None:
        """Connect *connection* by *connect_to*, which uses its fields."""
        clock = asyncio.get_running_loop().time
        end_s = clock() + self.limit_s
        hosts = await self._allowed()
        while True:
            connection.host = hosts.pop(0)
            connection.socket_connect_timeout = max(0.0, end_s - clock()) / (len(hosts) + 1)
            try:
                return await connect_to()
            except (ConnectionError, TimeoutError):
                if not hosts:
                    raise

    async def _allowed(self) -> list[str]:
        try:
            async with asyncio.timeout(self.limit_s):
                return await allowed_addresses(self.host, self.port, self.addresses)
        except AddressRefused as error:
            raise ConnectionError(error.reason) from None
        except builtins.TimeoutError:
            raise TimeoutError(f"the name {self.host} was not resolved in time") from None
        except OSError as error:
            raise ConnectionError(f"{self.host}: {error.strerror or error}") from None


def _pool(
    settings: RedisSettings, *, password: str | None, addresses: ReceiverAddresses
) -> ConnectionPool:
    place = settings.place
    others: dict[str, Any] = dict(place)
    # A server that does not even accept a connection is down; the attempt has its own limit.
    limit_s = settings.timeout_s / 2
    kind: Any = UnixDomainSocketConnection
    if not settings.is_unix:
        kind = _CheckedByTls if settings.tls else _Checked
        others["way"] = _Way(str(place["host"]), int(place["port"]), addresses, limit_s)
    if settings.tls and settings.ca_file is not None:
        others["ssl_ca_certs"] = settings.ca_file
    return ConnectionPool(
        connection_class=kind,
        max_connections=settings.concurrency + 1,
        socket_connect_timeout=limit_s,
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
