"""``orderlane consume``: a consumer for the terminal."""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator
from typing import Annotated, Any

import typer
import uvloop

from broker_core.tasks import cancel_and_wait, spawn
from proxy.cli.executor import Executor
from proxy.cli.history_observer import HistoryObserver
from proxy.cli.options import (
    DEFAULT_PROXY,
    CaOption,
    CertificateOption,
    GroupArgument,
    HistoryOption,
    KeyOption,
    ProxyOption,
    TokenOption,
    client_tls,
    finite,
)
from proxy.cli.output import print_json, say
from proxy.cli.serving import open_history
from proxy.diagnosis.findings import number
from proxy.errors import OrderlaneError
from thin_client import AsyncConsumer, ClientError, Defer, Message

_LOOK_S = 0.1


def consume(
    group: GroupArgument,
    topics: Annotated[
        list[str] | None, typer.Argument(help="topics (default: the group's)")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="exit after N messages")] = None,
    until_idle: Annotated[
        float | None,
        typer.Option(min=0.1, help="exit after N idle seconds", callback=finite),
    ] = None,
    concurrency: Annotated[
        int, typer.Option(min=1, help="maximum number of messages handled at the same time")
    ] = 8,
    work_ms: Annotated[
        float,
        typer.Option(
            min=0, max=1e9, help="simulated handling time per message, ms", callback=finite
        ),
    ] = 0.0,
    quiet: Annotated[bool, typer.Option("--quiet", help="do not print messages")] = False,
    command: Annotated[
        str | None,
        typer.Option(
            "--exec",
            help="shell command to run for each message, with its body on stdin; exit code 0 acks,"
            " 65 rejects, 69 gives back unhandled, any other retries",
        ),
    ] = None,
    proxy: ProxyOption = DEFAULT_PROXY,
    token: TokenOption = None,
    tls_ca: CaOption = None,
    tls_certificate: CertificateOption = None,
    tls_key: KeyOption = None,
    history: HistoryOption = None,
) -> None:
    """Consume messages and print each as one line of JSON; SIGTERM drains.

    A body that is not UTF-8 is printed as base64 in "body_base64". With --exec nothing is printed;
    the command gets the fields in the environment as ORDERLANE_TOPIC, _QUEUE, _OFFSET, _KEY,
    _ORDER_KEY, _TAG, _ATTEMPT, _BORN_AT_MS, _MESSAGE_ID and _PROPERTIES (JSON).
    """
    if command is not None and not command.strip():
        raise OrderlaneError("--exec is empty: give a shell command")
    writer = open_history(history, "consume")
    name = f"consume-{os.getpid()}"
    executor = None if command is None else Executor(command)
    observer = LeaseWatch(writer, group=group, consumer=name, executor=executor)

    async def run() -> None:
        consumer = AsyncConsumer(
            proxy,
            group=group,
            topics=topics or None,
            concurrency=concurrency,
            client_id=name,
            token=token,
            tls=client_tls(tls_ca, tls_certificate, tls_key),
            observer=observer,
        )
        printer = _Handler(consumer, work_ms=work_ms, quiet=quiet)
        watch = spawn(_stop_when(consumer, observer, count, until_idle), name="stop when done")
        try:
            await consumer.run(executor or printer)
        finally:
            await cancel_and_wait(watch)
        if printer.failure is not None:
            raise printer.failure

    try:
        uvloop.run(run())
    except UnicodeEncodeError:
        raise
    except (ValueError, ClientError) as error:
        raise OrderlaneError(str(error)) from None
    finally:
        writer.close()
    if until_idle is not None and observer.failing is not None:
        raise OrderlaneError(f"no messages received, because no proxy answers: {observer.failing}")
    if quiet:
        print_json({"handled": observer.handled})
    else:
        say(f"{number(observer.handled, 'message')} handled")


class LeaseWatch(HistoryObserver):
    """Terminates the command of a message whose lease is lost."""

    def __init__(self, *arguments: Any, executor: Executor | None, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._executor = executor

    def on_lease_lost(self, message: Message) -> None:
        """Terminate the command, since another client may receive the message."""
        if self._executor is not None:
            self._executor.lose(message)


class _Handler:
    """Prints messages; ``failure`` is an error of stdout, such as a closed pipe, or an encoding
    without a character of a message.
    """

    def __init__(self, consumer: AsyncConsumer, *, work_ms: float, quiet: bool) -> None:
        self.failure: OSError | UnicodeEncodeError | None = None
        self._consumer = consumer
        self._work_s = work_ms / 1000
        self._quiet = quiet

    async def __call__(self, message: Message) -> None:
        if self._work_s:
            await asyncio.sleep(self._work_s)
        if self._quiet:
            return
        try:
            print_json(_shown(message))
        except (OSError, UnicodeEncodeError) as error:
            self.failure = error.with_traceback(None)
            self._consumer.stop()
            raise Defer from None


async def _stop_when(
    consumer: AsyncConsumer,
    observer: HistoryObserver,
    count: int | None,
    until_idle: float | None,
) -> None:
    """Stop *consumer* after *count* messages, or after *until_idle* seconds without any."""
    async for idle_s in _idle(observer):
        if count is not None and observer.handled >= count:
            break
        if until_idle is not None and idle_s >= until_idle:
            break
    consumer.stop()


async def _idle(observer: HistoryObserver) -> AsyncIterator[float]:
    """Yield the seconds since the last message was handled, repeatedly."""
    loop = asyncio.get_running_loop()
    last, handled = loop.time(), 0
    while True:
        if observer.handled != handled or observer.open:
            last, handled = loop.time(), observer.handled
        yield loop.time() - last
        await asyncio.sleep(_LOOK_S)


def _shown(message: Message) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "topic": message.topic,
        "queue": message.queue.partition("#")[0],
        "offset": message.offset,
        "key": message.key,
        "order_key": message.order_key,
        "tag": message.tag,
        "attempt": message.attempt,
        "properties": message.properties,
    }
    try:
        shown["body"] = message.body.decode()
    except UnicodeDecodeError:
        shown["body_base64"] = base64.b64encode(message.body).decode()
    return shown
