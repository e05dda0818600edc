"""A gateway in this process, on asyncio or in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from broker_core.broker import BrokerSettings
from broker_core.client import BrokerClient
from broker_core.clock import now_ns
from broker_core.names import Group, Topic
from proxy.cli.servers import running_all
from proxy.history.record import NullHistory
from proxy.settings.proxy_settings import load_settings

T = TypeVar("T")

#: Any free port.
_ANY = "127.0.0.1:0"
#: Over the defaults of a server: a test needs no patience, and few megabytes on disk.
_PROXY = {"commit_every_s": 0.1}
_BROKER = {"flush": "async", "segment_bytes": 8 * 1024 * 1024}
_LOOK_AGAIN_S = 0.05
_REQUEST_S = 20.0


class AsyncGateway:
    """Nameserver, broker and proxy in the running event loop::

        async with AsyncGateway() as gateway:
            async with AsyncProducer(gateway.address) as producer:
                await producer.send("orders", '{"id": 7}', key="customer-7")
            ...
            await gateway.until_consumed("billing", "orders")

    Groups and topics are created when they are first used. Data are in a temporary folder, deleted
    at the end. It listens on free ports of the loopback, in a ``virtual_time_loop`` in memory.

    Args:
        groups: settings of consumer groups, as the list ``groups`` of a settings file.
        settings: further settings of the proxy by dotted name, such as
            ``{"limits.max_inflight_bytes": 1_000_000}``. The environment has no effect.
        queues: number of queues of topics created automatically; default 8.

    Raises ``SettingsError``, an Exception with one sentence per problem, for invalid settings.
    """

    def __init__(
        self,
        *,
        groups: Sequence[Mapping[str, Any]] = (),
        settings: Mapping[str, Any] | None = None,
        queues: int = 8,
    ) -> None:
        given: dict[str, Any] = {**_PROXY, "auto_create_groups": True, **(settings or {})}
        if groups:
            given["groups"] = [dict(each) for each in groups]
        addresses = {"listen.thrift": _ANY, "listen.http": _ANY}
        self._settings = load_settings(None, {**addresses, **given}, environment={})
        self._queues = queues
        self._running = contextlib.AsyncExitStack()
        self._addresses: dict[str, str] = {}
        self._client: BrokerClient | None = None

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="orderlane-testing-"))
            broker = BrokerSettings.model_validate(
                {
                    **_BROKER,
                    "data": Path(folder),
                    "listen": _ANY,
                    "default_queues": self._queues,
                    "auto_create_topics": True,
                }
            )
            self._addresses = await stack.enter_async_context(
                running_all(self._settings, broker, NullHistory(), nameserver=_ANY)
            )
            client = BrokerClient(
                nameservers=[self._addresses["nameserver"]],
                client_id="orderlane.testing@1",
                request_timeout_s=_REQUEST_S,
            )
            await client.start()
            stack.push_async_callback(client.close)
            self._client = client
            self._running = stack.pop_all()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._client = None
        await self._running.aclose()

    @property
    def address(self) -> str:
        """Address for consumers and producers, ``host:port``."""
        return self._addresses_of_running()["thrift"]

    @property
    def http(self) -> str:
        """Address of the console, the admin API and the metrics, ``host:port``."""
        return self._addresses_of_running()["http"]

    @property
    def nameserver(self) -> str:
        """Address of the nameserver, ``host:port``, for clients of RocketMQ."""
        return self._addresses_of_running()["nameserver"]

    async def create_topic(self, topic: str, *, queues: int) -> None:
        """Create *topic* with this number of queues."""
        await self._broker().create_topic(Topic(topic), queues=queues)

    async def lag(self, group: str, topic: str) -> int:
        """Return the number of messages in *topic* that *group* has not committed.

        A message is committed within about 0.1 s after it and all before it in its queue are acked,
        rejected or parked. Raises ``BrokerError`` for a topic that does not exist.
        """
        client = self._broker()
        total = 0
        for queue in await client.queues(Topic(topic)):
            committed = await client.committed_offset(Group(group), queue)
            begin = await client.min_offset(queue) if committed is None else committed
            total += await client.max_offset(queue) - begin
        return total

    async def until_consumed(self, group: str, topic: str, *, within_s: float = 30.0) -> None:
        """Wait until *group* has committed all messages that are in *topic*.

        Raises TimeoutError with the lag if that takes longer than *within_s* seconds.
        """
        deadline_ns = now_ns() + int(within_s * 1e9)
        while lag := await self.lag(group, topic):
            if now_ns() > deadline_ns:
                raise TimeoutError(
                    f"group {group} has not consumed topic {topic} within {within_s:g} s:"
                    f" its lag is {lag}"
                )
            await asyncio.sleep(_LOOK_AGAIN_S)

    def _broker(self) -> BrokerClient:
        if self._client is None:
            raise _not_running(self)
        return self._client

    def _addresses_of_running(self) -> dict[str, str]:
        if self._client is None:
            raise _not_running(self)
        return self._addresses


class Gateway:
    """``AsyncGateway`` in a thread of its own, for tests without asyncio::

        with Gateway() as gateway, Producer(gateway.address) as producer:
            producer.send("orders", '{"id": 7}', key="customer-7")
            ...
            gateway.until_consumed("billing", "orders")

    Arguments and errors are those of ``AsyncGateway``.
    """

    def __init__(
        self,
        *,
        groups: Sequence[Mapping[str, Any]] = (),
        settings: Mapping[str, Any] | None = None,
        queues: int = 8,
    ) -> None:
        self._gateway = AsyncGateway(groups=groups, settings=settings, queues=queues)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="orderlane gateway", daemon=True
        )
        self._thread.start()
        try:
            self._do(self._gateway.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        try:
            self._do(self._gateway.__aexit__(*exc_info))
        finally:
            self._end()

    @property
    def address(self) -> str:
        """Address for consumers and producers, ``host:port``."""
        return self._entered().address

    @property
    def http(self) -> str:
        """Address of the console, the admin API and the metrics, ``host:port``."""
        return self._entered().http

    @property
    def nameserver(self) -> str:
        """Address of the nameserver, ``host:port``, for clients of RocketMQ."""
        return self._entered().nameserver

    def create_topic(self, topic: str, *, queues: int) -> None:
        """Create *topic* with this number of queues."""
        self._do(self._gateway.create_topic(topic, queues=queues))

    def lag(self, group: str, topic: str) -> int:
        """Return the number of messages in *topic* that *group* has not committed.

        See ``AsyncGateway.lag``.
        """
        return self._do(self._gateway.lag(group, topic))

    def until_consumed(self, group: str, topic: str, *, within_s: float = 30.0) -> None:
        """Wait until *group* has committed all messages that are in *topic*.

        Raises TimeoutError with the lag if that takes longer than *within_s* seconds.
        """
        self._do(self._gateway.until_consumed(group, topic, within_s=within_s))

    def _entered(self) -> AsyncGateway:
        if self._loop is None:
            raise _not_running(self)
        return self._gateway

    def _do(self, coroutine: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            coroutine.close()
            raise _not_running(self)
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _end(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def _not_running(gateway: object) -> RuntimeError:
    name = type(gateway).__name__
    form = "async with" if name.startswith("Async") else "with"
    return RuntimeError(f"the {name} is not running: use it inside '{form} {name}(...)'")
