"""The conformance program of the Python clients, specified in
``tests/conformance/clients/README.md``.

``python -m testkit.thin_clients.program '{"servers": "127.0.0.1:9713", "group": "billing"}'``
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proxy.cli.history_observer import HistoryObserver
from proxy.history.record import History, HistoryWriter, NullHistory
from testkit.thin_clients import calls_program
from testkit.thin_clients.lines import error_of, message_fields, say, security_of
from thin_client import (
    AsyncConsumer,
    ClientError,
    Defer,
    KeyBatch,
    Message,
    Observer,
    Reject,
    Retry,
    Timing,
)


def timing_of(options: dict[str, Any]) -> Timing:
    """Return the timing in *options*, given in milliseconds."""
    names = ("ack_linger", "request_timeout", "drain_timeout")
    given = {f"{n}_s": options[f"{n}_ms"] / 1000 for n in names if f"{n}_ms" in options}
    return Timing(**given)


class Watcher(HistoryObserver):
    """Writes the lines, and notifies a handler when its lease is lost."""

    def __init__(self, history: History, options: dict[str, Any]) -> None:
        super().__init__(history, group=options["group"], consumer=options.get("client_id", ""))
        self._quiet = options.get("quiet", False)
        self.lost: dict[Message, asyncio.Event] = {}

    def on_handle_start(self, message: Message) -> None:
        super().on_handle_start(message)
        if not self._quiet:
            self.lost[message] = asyncio.Event()
            say("start", **message_fields(message))

    def on_handle_end(self, message: Message, outcome: str) -> None:
        super().on_handle_end(message, outcome)
        if not self._quiet:
            del self.lost[message]
            place = {"queue": message.queue, "offset": message.offset}
            say("end", lease=message.lease_id, outcome=outcome, **place)

    def on_lease_lost(self, message: Message) -> None:
        if message in self.lost:
            self.lost[message].set()
            say("lost", lease=message.lease_id, queue=message.queue)

    def on_error(self, error: ClientError) -> None:
        super().on_error(error)
        say("error", **error_of(error))


class OnlyErrors(Observer):
    """Ignores handlers."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def on_error(self, error: ClientError) -> None:
        self._watcher.on_error(error)


def is_idle(options: dict[str, Any]) -> bool:
    """Return whether handlers do nothing: benchmarks measure the client, not this program."""
    busy = options.get("work_ms", [0, 0])[1] > 0 or "history" in options
    return options.get("quiet", False) and not busy


class Work:
    """The work of a handler, given by its message's body."""

    def __init__(self, options: dict[str, Any], lost: dict[Message, asyncio.Event]) -> None:
        self._range_ms = options.get("work_ms", [0, 0])
        self._lost = lost
        self._idle = is_idle(options)
        self.handled = 0  # while idle; otherwise the watcher counts

    async def handle(self, message: Message) -> object:
        """Work, then end as the message says."""
        if self._idle:
            self.handled += 1
            return None
        body = self._read(message)
        time.sleep(body.get("block_ms", 0) / 1000)  # noqa: ASYNC251  # that is the case
        await self._work(message, body)
        do = body.get("do", "ok") if message.attempt <= body.get("times", 1 << 31) else "ok"
        reason = body.get("reason", "")
        if do == "retry":
            after_ms = body.get("after_ms")
            raise Retry() if after_ms is None else Retry(after_ms / 1000)
        if do == "reject":
            raise Reject(reason)
        if do == "defer":
            raise Defer
        if do == "raise":
            raise RuntimeError(reason)
        return (nothing for nothing in ()) if do == "unrun" else None

    def forgets(self, message: Message) -> bool:
        """Return whether the loop is to continue without settling the message."""
        return self._read(message).get("do") == "forget"

    @staticmethod
    def _read(message: Message) -> dict[str, Any]:
        try:
            body = message.json()
        except ValueError:
            return {}
        return body if isinstance(body, dict) else {}

    async def _work(self, message: Message, body: dict[str, Any]) -> None:
        work_ms = body.get("work_ms", random.uniform(*self._range_ms))
        lost = self._lost.get(message) or asyncio.Event()
        if body.get("stubborn"):
            await asyncio.sleep(work_ms / 1000)
        elif body.get("until") == "lost":
            await lost.wait()
        elif work_ms > 0:
            try:
                async with asyncio.timeout(work_ms / 1000):
                    await lost.wait()
            except TimeoutError:
                pass


def history_of(options: dict[str, Any]) -> History:
    """Return a history in the file of *options*, or one that writes nothing."""
    if "history" not in options:
        return NullHistory()
    path = Path(options["history"])
    history = HistoryWriter(path.parent, options.get("node", path.stem), parts=("consumer",))
    assert history.path == path, "the driver names the file after the node"
    return history


def consumer_of(options: dict[str, Any], watcher: Watcher) -> AsyncConsumer:
    """Return the consumer that *options* describe."""
    names = ("topics", "concurrency", "prefetch", "max_run", "client_id")
    return AsyncConsumer(
        options["servers"],
        group=options["group"],
        observer=OnlyErrors(watcher) if is_idle(options) else watcher,
        timing=timing_of(options),
        **{name: options[name] for name in names if name in options},
        **security_of(options),
    )


async def consume(options: dict[str, Any]) -> int:
    """Handle messages until SIGTERM; return the exit code."""
    history = history_of(options)
    watcher = Watcher(history, options)
    work = Work(options, watcher.lost)
    consumer = consumer_of(options, watcher)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, consumer.stop)
    failure: Exception | None = None
    try:
        await FORMS[options.get("form", "handler")](consumer, work)
    except (ClientError, RuntimeError) as error:
        failure = error.with_traceback(None)
    history.close()
    say("stopped", handled=watcher.handled + work.handled, error=failure and error_of(failure))
    return 0 if failure is None else 1


async def _by_handler(consumer: AsyncConsumer, work: Work) -> None:
    await consumer.run(work.handle, handle_signals=False)


async def _by_batches(consumer: AsyncConsumer, work: Work) -> None:
    async def handle(batch: KeyBatch) -> None:
        for message in batch:
            await work.handle(message)
            if message.lease_lost:
                raise Defer
            batch.ok()

    await consumer.run_batches(handle, handle_signals=False)


async def _by_iterator(consumer: AsyncConsumer, work: Work) -> None:
    async with consumer:
        async for message in consumer:
            if work.forgets(message):
                continue
            async with message:
                await work.handle(message)


FORMS: dict[str, Callable[[AsyncConsumer, Work], Any]] = {
    "handler": _by_handler,
    "batches": _by_batches,
    "iterator": _by_iterator,
}


def main() -> int:
    """Run the mode in the argument; return the exit code."""
    options = json.loads(sys.argv[1])
    mode = options.get("mode", "consume")
    if mode == "consume":
        return asyncio.run(consume(options))
    return calls_program.MODES[mode](options)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # a handler that cannot be stopped must not keep the process
