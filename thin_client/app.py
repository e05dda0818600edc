"""Several handlers in one process, each for its own topics, all stopped by one signal."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from thin_client.aio import AsyncConsumer
from thin_client.arguments import check_count
from thin_client.handlers import check_handler
from thin_client.loop_signals import stop_on_signals
from thin_client.options import Observer, Timing, check_options
from thin_client.servers import Servers, Tls
from thin_client.tracing import Tracer

F = TypeVar("F", bound=Callable[..., Awaitable[object] | None])


@dataclass(frozen=True, slots=True)
class _Registered:
    handler: Callable[..., Awaitable[object] | None]
    topics: Sequence[str]
    batches: bool
    options: dict[str, Any]


class App:
    """Handlers of a consumer group, each for one or more topics::

        app = App("proxy:9713", group="billing")

        @app.on("orders", concurrency=64)
        async def charge(message: Message) -> None:
            await card.charge(message.json())

        @app.on("refunds", batch_by="key", max_batch=32)
        async def refund(batch: KeyBatch) -> None:
            for message in batch:
                await card.refund(message.json())
                batch.ok()

        app.run()  # until SIGTERM

    Plain functions run in threads. Each handler has its own consumer and connections. Options and
    errors are those of ``BaseConsumer``.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        *,
        group: str,
        client_id: str | None = None,
        token: str | None = None,
        tls: Tls | None = None,
        tracer: Tracer | None = None,
        observer: Observer | None = None,
        timing: Timing | None = None,
    ) -> None:
        check_options(group=group, client_id=client_id, token=token)
        Servers(servers, tls=tls)
        self._servers = servers
        self._client_id = client_id
        self._timing = timing or Timing()
        self._common: dict[str, Any] = {
            "group": group,
            "token": token,
            "tls": tls,
            "tracer": tracer,
            "observer": observer,
        }
        self._registered: list[_Registered] = []
        self._consumers: list[AsyncConsumer] = []
        self._lock = threading.RLock()  # of the next two; a signal may interrupt stop() by stop()
        self._loop: asyncio.AbstractEventLoop | None = None  # while it runs
        self._stopped_early = False

    def on(
        self,
        *topics: str,
        concurrency: int = 8,
        prefetch: int | None = None,
        batch_by: Literal["key"] | None = None,
        max_batch: int = 32,
    ) -> Callable[[F], F]:
        """Register a handler of *topics*, which takes a Message, or with ``batch_by="key"`` a
        KeyBatch of at most *max_batch* messages.

        Raises ValueError for invalid options, and TypeError for a generator function or a class.
        """
        if not topics:
            raise ValueError('topics are missing: name at least one, as in @app.on("orders")')
        if batch_by not in (None, "key"):
            raise ValueError(f"batch_by is {batch_by!r}: expected 'key' or None")
        check_count("max_batch", max_batch, least=1)
        check_options(
            group=self._common["group"],
            topics=topics,
            concurrency=concurrency,
            prefetch=prefetch,
        )
        options = {
            "concurrency": concurrency,
            "prefetch": prefetch,
            "max_run": max_batch if batch_by else 1,
        }

        def register(handler: F) -> F:
            check_handler(handler)
            self._registered.append(_Registered(handler, topics, batch_by is not None, options))
            return handler

        return register

    def run(self, *, drain_timeout: float | None = None) -> None:
        """Handle messages until SIGTERM or SIGINT; then drain for at most *drain_timeout* seconds
        (default: that of *timing*, 30). Raises the error that ends a consumer.
        """
        asyncio.run(self.serve(drain_timeout=drain_timeout))

    async def serve(
        self, *, drain_timeout: float | None = None, handle_signals: bool = True
    ) -> None:
        """Do the same as ``run`` in an existing event loop; cancelling it drains too."""
        if not self._registered:
            raise ValueError("no handler is registered: add one with @app.on")
        timing = self._timing
        if drain_timeout is not None:
            timing = replace(timing, drain_timeout_s=drain_timeout)
        self._consumers = [
            AsyncConsumer(
                self._servers,
                topics=list(each.topics),
                client_id=self._client_id and f"{self._client_id}-{number}",
                timing=timing,
                **self._common,
                **each.options,
            )
            for number, each in enumerate(self._registered, start=1)
        ]
        self._begin()
        try:
            with stop_on_signals(self.stop) if handle_signals else contextlib.nullcontext():
                ends = await asyncio.gather(
                    *map(self._one, self._registered, self._consumers), return_exceptions=True
                )
        finally:
            with self._lock:
                self._loop = None
        for end in ends:
            if end is not None:
                raise end

    def stop(self) -> None:
        """Drain and let ``run`` return; a second call cancels running handlers at once.

        May be called from any thread. Before ``run``, it lets the next one return at once.
        """
        with self._lock:
            loop = self._loop
            self._stopped_early = loop is None
        if loop is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(self._stop_consumers)

    def _begin(self) -> None:
        with self._lock:
            self._loop = asyncio.get_running_loop()
            stopped, self._stopped_early = self._stopped_early, False
        if stopped:
            self._stop_consumers()

    def _stop_consumers(self) -> None:
        for consumer in self._consumers:
            consumer.stop()

    async def _one(self, registered: _Registered, consumer: AsyncConsumer) -> BaseException | None:
        run = consumer.run_batches if registered.batches else consumer.run
        try:
            await run(registered.handler, handle_signals=False)
        except (SystemExit, KeyboardInterrupt) as error:
            return error  # in a task it would end the loop before other consumers drain
        else:
            return None
        finally:  # the end of one consumer stops the others
            for each in self._consumers:
                if not each.stopping:
                    each.stop()
