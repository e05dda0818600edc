"""``orderlane produce`` and ``orderlane consume``: a producer and a consumer for the terminal."""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import random
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

import orjson
import typer
import uvloop

from broker_core.tasks import cancel_and_wait, spawn
from proxy.cli.observing import HistoryObserver
from proxy.cli.options import DEFAULT_PROXY, HistoryOption, ProxyOption
from proxy.cli.output import print_json, say
from proxy.cli.serving import open_history
from proxy.core.order_key import key_text
from proxy.errors import OrderlaneError
from proxy.history.record import History
from thin_client import (
    AsyncConsumer,
    AsyncProducer,
    ClientError,
    Defer,
    Message,
    Outgoing,
    SendFailed,
    new_message_id,
)
from thin_client.delivery import UNIQUE_ID

_LOOK_S = 0.1


def produce(
    topic: Annotated[str, typer.Argument(help="the topic to send to")],
    count: Annotated[
        int | None, typer.Option(min=1, help="make so many messages instead of reading stdin")
    ] = None,
    keys: Annotated[int, typer.Option(min=0, help="spread made messages over so many keys")] = 100,
    keyed: Annotated[
        bool, typer.Option("--keyed", help="lines of stdin are KEY, a tab, and the body")
    ] = False,
    tag: Annotated[str | None, typer.Option(help="tag of every message")] = None,
    batch: Annotated[int, typer.Option(min=1, max=10_000, help="messages in one request")] = 100,
    rate: Annotated[float | None, typer.Option(min=0.1, help="messages a second at most")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="seconds to try each request")] = 30.0,
    proxy: ProxyOption = DEFAULT_PROXY,
    history: HistoryOption = None,
) -> None:
    """Send messages: the lines of stdin, or COUNT made ones. Those of a key keep their order.

    A request that fails is sent again under the same ids until its time is up.
    """
    if count is None:
        messages = _from_stdin(topic, keyed=keyed, tag=tag)
    else:
        messages = _made(topic, count, keys, tag=tag)
    writer = open_history(history, "produce")
    sent = uvloop.run(_produce(messages, proxy, batch, rate, timeout, writer))
    writer.close()
    print_json({"sent": sent})


async def _produce(
    messages: Iterator[Outgoing],
    proxy: str,
    batch: int,
    rate: float | None,
    timeout: float,
    history: History,
) -> int:
    sent = 0
    began = asyncio.get_running_loop().time()
    try:
        async with AsyncProducer(proxy, timeout_s=timeout) as producer:
            while chunk := await asyncio.to_thread(lambda: list(itertools.islice(messages, batch))):
                about = [_about(message) for message in chunk]
                history.write_many("send", about)
                try:
                    await producer.send_batch(chunk)
                except SendFailed as error:
                    event = "send_info" if error.outcome_unknown else "send_fail"
                    history.write_many(event, [{**each, "error": str(error)} for each in about])
                    raise OrderlaneError(f"{error}; {sent} messages before it are stored") from None
                history.write_many("send_ok", about)
                sent += len(chunk)
                if rate is not None:
                    ahead_s = sent / rate - (asyncio.get_running_loop().time() - began)
                    await asyncio.sleep(max(0.0, ahead_s))
    except (ValueError, ClientError) as error:
        raise OrderlaneError(str(error)) from None
    return sent


def _about(message: Outgoing) -> dict[str, Any]:
    return {"msg": message.properties[UNIQUE_ID], "topic": message.topic, "key": message.key}


def _made(topic: str, count: int, keys: int, *, tag: str | None) -> Iterator[Outgoing]:
    chooser = random.Random()
    for number in range(count):
        key = f"key-{chooser.randrange(keys)}" if keys else None
        body = orjson.dumps({"n": number, "key": key})
        yield Outgoing(topic, body, key=key, tag=tag, properties={UNIQUE_ID: new_message_id()})


def _from_stdin(topic: str, *, keyed: bool, tag: str | None) -> Iterator[Outgoing]:
    for number, line in enumerate(sys.stdin.buffer, start=1):
        text = line.rstrip(b"\r\n")
        key = None
        if keyed:
            head, separator, text = text.partition(b"\t")
            if not separator:
                raise OrderlaneError(f"line {number} of stdin has no tab: expected KEY, tab, body")
            key = head.decode(errors="replace") or None
        if text:
            properties = {UNIQUE_ID: new_message_id()}
            yield Outgoing(topic, text, key=key, tag=tag, properties=properties)


def consume(
    group: Annotated[str, typer.Argument(help="the consumer group")],
    topics: Annotated[
        list[str] | None, typer.Argument(help="topics (default: the group's)")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="stop after so many messages")] = None,
    until_idle: Annotated[
        float | None, typer.Option(min=0.1, help="stop when none came for so many seconds")
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="messages handled at a time")] = 8,
    work_ms: Annotated[float, typer.Option(min=0, help="pretend to work so long on each")] = 0.0,
    quiet: Annotated[bool, typer.Option("--quiet", help="print no messages")] = False,
    proxy: ProxyOption = DEFAULT_PROXY,
    history: HistoryOption = None,
) -> None:
    """Handle messages and print each as one line of JSON; SIGTERM drains.

    A body that is no UTF-8 text is printed as base64 under "body_base64".
    """
    writer = open_history(history, "consume")
    name = f"consume-{os.getpid()}"
    observer = HistoryObserver(writer, group=group, consumer=name)

    async def run() -> None:
        consumer = AsyncConsumer(
            proxy,
            group=group,
            topics=topics or None,
            concurrency=concurrency,
            client_id=name,
            observer=observer,
        )
        handler = _Handler(consumer, work_ms=work_ms, quiet=quiet)
        watch = spawn(_stop_when(consumer, observer, count, until_idle), name="stop when done")
        try:
            await consumer.run(handler)
        finally:
            await cancel_and_wait(watch)
        if handler.failure is not None:
            raise handler.failure

    try:
        uvloop.run(run())
    except (ValueError, ClientError) as error:
        raise OrderlaneError(str(error)) from None
    finally:
        writer.close()
    if until_idle is not None and observer.failing is not None:
        raise OrderlaneError(f"nothing came, as no proxy answers: {observer.failing}")
    if quiet:
        print_json({"handled": observer.handled})
    else:
        say(f"{observer.handled} messages handled")


class _Handler:
    """Prints messages; ``failure`` is why that ended, such as a reader of stdout that has left."""

    def __init__(self, consumer: AsyncConsumer, *, work_ms: float, quiet: bool) -> None:
        self.failure: OSError | None = None
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
        except OSError as error:
            self.failure = error
            self._consumer.stop()
            raise Defer from None


async def _stop_when(
    consumer: AsyncConsumer,
    observer: HistoryObserver,
    count: int | None,
    until_idle: float | None,
) -> None:
    """Stop *consumer* once it handled *count* messages, or none for *until_idle* seconds."""
    async for idle_s in _idle(observer):
        if count is not None and observer.handled >= count:
            break
        if until_idle is not None and idle_s >= until_idle:
            break
    consumer.stop()


async def _idle(observer: HistoryObserver) -> AsyncIterator[float]:
    """Again and again: seconds since something was handled last."""
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
        "order_key": key_text(message.order_key),
        "tag": message.tag,
        "attempt": message.attempt,
        "properties": message.properties,
    }
    try:
        shown["body"] = message.body.decode()
    except UnicodeDecodeError:
        shown["body_base64"] = base64.b64encode(message.body).decode()
    return shown
