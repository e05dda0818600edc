"""Python clients that are closed or used by another thread or event loop than the one at work."""

from __future__ import annotations

import asyncio
import ssl
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from broker_core.tasks import spawn
from testkit.certificates import make_certificates
from testkit.eventually import eventually
from testkit.scripted_proxy import Request, ScriptedProxy
from thin_client import (
    AsyncConsumer,
    AsyncProducer,
    ConnectionLost,
    Decision,
    PreparedMessage,
    Producer,
    Puller,
    SendFailed,
    Timing,
    Tls,
    Transactions,
    calls,
    puller,
)
from thin_client.connection import Connection
from thin_client.servers import Destination, Servers
from thrift_idl import producer

pytestmark = pytest.mark.sockets

QUICK = Timing(ack_linger_s=0.02, request_timeout_s=20, drain_timeout_s=20)
ELSEWHERE = "in another event loop: use it there, or create another"


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy() as scripted:
        yield scripted


class AnotherLoop:
    """An event loop that runs in a thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()

    def begin(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    async def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return await asyncio.wait_for(asyncio.wrap_future(self.begin(work)), 30)

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(30)
        self.loop.close()


@pytest.fixture
def other() -> Iterator[AnotherLoop]:
    another = AnotherLoop()
    yield another
    another.end()


# ---- the blocking forms -------------------------------------------------------------------------


async def test_a_send_that_a_close_interrupts_is_sent_again_and_leaves_no_connection(
    proxy: ScriptedProxy,
) -> None:
    asked, done = asyncio.Event(), asyncio.Event()

    async def held(request: Request) -> Any:
        asked.set()
        await done.wait()
        return await proxy.plainly(request)

    proxy.script("sendSync", held)
    sender = Producer(proxy.address)
    sending = spawn(asyncio.to_thread(sender.send, "orders", b"x"), name="send")
    await asked.wait()
    await asyncio.to_thread(sender.close)
    sent_id = await asyncio.wait_for(sending, 30)
    done.set()

    (stored, *_) = proxy.stored
    assert (stored.properties or {})["UNIQ_KEY"] == sent_id
    await eventually(lambda: proxy.open_connections == 0)


async def test_a_close_never_ends_the_encryption_of_a_call(tmp_path: Path) -> None:
    """The call would read encrypted bytes as an answer, or send its token in plain text."""
    certificates = make_certificates(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.server, certificates.server_key)

    class SlowToShutDown(ssl.SSLSocket):
        def shutdown(self, how: int) -> None:
            super().shutdown(how)
            time.sleep(1)

    async with ScriptedProxy(tls=context) as proxy:
        destination = Servers(proxy.address, tls=Tls(ca=str(certificates.ca))).destination
        assert destination.ssl_context is not None
        destination.ssl_context.sslsocket_class = SlowToShutDown
        connection = await asyncio.to_thread(Connection, destination, timeout_s=20)
        call = calls.send(producer.Message("orders", body=b"x"), timeout_ms=3000)
        connection.start(call, timeout_s=20)
        await eventually(lambda: bool(proxy.stored))
        await asyncio.sleep(0.1)  # the answer arrives
        closing = spawn(asyncio.to_thread(connection.close), name="close")
        await asyncio.sleep(0.1)
        with pytest.raises(ConnectionLost, match="was closed during sendSync"):
            await asyncio.to_thread(connection.finish, call, timeout_s=20)
        await closing


@pytest.mark.failing_tasks
async def test_a_close_ends_a_pull_that_waits(proxy: ScriptedProxy) -> None:
    each = Puller(proxy.address, group="g")
    pulling = spawn(asyncio.to_thread(each.pull, wait_s=600), name="pull")
    await eventually(lambda: proxy.waiting_pulls == 1)
    await asyncio.to_thread(each.close)
    with pytest.raises(ConnectionLost, match="was closed during pull"):
        await asyncio.wait_for(pulling, 30)
    assert await asyncio.to_thread(each.pull, wait_s=0.02) == []  # connects again
    each.close()


@pytest.mark.failing_tasks
async def test_a_close_ends_a_pull_that_connects(
    proxy: ScriptedProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would wait for messages, which nothing could end."""
    connecting, go_on = threading.Event(), threading.Event()

    def slowly(destination: Destination, *, timeout_s: float) -> Connection:
        connecting.set()
        go_on.wait(30)
        return Connection(destination, timeout_s=timeout_s)

    monkeypatch.setattr(puller, "Connection", slowly)
    each = Puller(proxy.address, group="g")
    pulling = spawn(asyncio.to_thread(each.pull, wait_s=600), name="pull")
    await asyncio.to_thread(connecting.wait, 30)
    each.close()
    go_on.set()
    with pytest.raises(ConnectionLost, match="closed while connecting to"):
        await asyncio.wait_for(pulling, 30)
    await eventually(lambda: proxy.open_connections == 0)
    assert proxy.requests == []


# ---- the forms on asyncio -----------------------------------------------------------------------


async def test_a_producer_is_used_in_one_running_loop(
    proxy: ScriptedProxy, other: AnotherLoop
) -> None:
    """Its calls in two of them would have no order, and could not wait for each other."""
    sender = AsyncProducer(proxy.address)
    await other.do(sender.send("orders", b"1", key="k"))
    uses: list[Callable[[], Any]] = [
        lambda: sender.send("orders", b"2", key="k"),
        lambda: sender.enqueue("orders", b"2", key="k"),
        sender.close,
    ]
    for use in uses:
        with pytest.raises(RuntimeError, match=ELSEWHERE):
            await use()
    await other.do(sender.send("orders", b"3", key="k"))

    async def close() -> None:
        await sender.close()

    await other.do(close())
    await eventually(lambda: proxy.open_connections == 0)
    assert [each.body for each in proxy.stored] == [b"1", b"3"]
    assert proxy.accepted == 1


async def test_a_producer_whose_loop_stands_still_overtakes_nothing(proxy: ScriptedProxy) -> None:
    asked = asyncio.Event()

    async def held(request: Request) -> Any:
        asked.set()
        await asyncio.Event().wait()

    proxy.script("sendSync", held)
    sender = AsyncProducer(proxy.address)
    standing = asyncio.new_event_loop()

    async def begin() -> None:
        await sender.enqueue("orders", b"1", key="k")
        await asyncio.sleep(0.05)

    await asyncio.to_thread(standing.run_until_complete, begin())
    await asked.wait()
    with pytest.raises(RuntimeError, match=ELSEWHERE):
        await sender.send("orders", b"2", key="k")
    for task in asyncio.all_tasks(standing):
        task.cancel()
    await asyncio.to_thread(standing.run_until_complete, asyncio.sleep(0))
    standing.close()
    await sender.send("orders", b"3", key="k")
    assert [each.body for each in proxy.stored] == [b"3"]
    with pytest.raises(SendFailed, match="may have been stored"):
        await sender.close()


async def test_messages_under_way_at_the_end_of_their_loop_are_reported(
    proxy: ScriptedProxy,
) -> None:
    async def held(request: Request) -> Any:
        await asyncio.Event().wait()

    proxy.script("sendSync", held)
    proxy.script("sendBatchSync", held)
    sender = AsyncProducer(proxy.address)

    async def begin() -> list[str]:
        under_way = [await sender.enqueue("orders", b"x", key="k")]
        await asyncio.sleep(0.05)
        return [each.message_id for each in (*under_way, await sender.enqueue("orders", b"y"))]

    ids = await asyncio.to_thread(asyncio.run, begin())
    with pytest.raises(SendFailed, match="may have been stored") as caught:
        await sender.close()
    assert sorted(caught.value.failures) == sorted(ids)
    assert caught.value.outcome_unknown
    await sender.close()  # reported once


async def test_a_consumer_is_iterated_in_its_loop_and_stopped_from_any_thread(
    proxy: ScriptedProxy, other: AnotherLoop
) -> None:
    await proxy.put("a", "b")
    consumer = AsyncConsumer(proxy.address, group="g", timing=QUICK)
    taken: list[str | None] = []

    async def consume() -> None:
        async with consumer:
            async for message in consumer:
                await message.ack()
                taken.append(message.key)

    consuming = other.begin(consume())
    await eventually(lambda: len(taken) == 2)
    with pytest.raises(RuntimeError, match=ELSEWHERE):
        await anext(consumer)
    with pytest.raises(RuntimeError, match=ELSEWHERE):
        await consumer.__aexit__(None, None, None)
    consumer.stop()
    await asyncio.wait_for(asyncio.wrap_future(consuming), 30)
    assert proxy.verdicts == [(1, "ok"), (2, "ok")]


async def test_a_message_is_settled_from_any_thread(proxy: ScriptedProxy) -> None:
    await proxy.put("a", "b")
    async with AsyncConsumer(proxy.address, group="g", timing=QUICK) as consumer:
        for _ in range(2):
            message = await anext(consumer)
            await asyncio.to_thread(message.ack)
        await eventually(lambda: proxy.verdicts == [(1, "ok"), (2, "ok")])


async def test_a_plain_handler_stops_its_consumer(proxy: ScriptedProxy) -> None:
    """It runs in a thread; its message is acked."""
    await proxy.put("a")
    consumer = AsyncConsumer(proxy.address, group="g", timing=QUICK)

    def handle(taken: object) -> None:
        consumer.stop()

    await asyncio.wait_for(consumer.run(handle, handle_signals=False), 30)
    assert proxy.verdicts == [(1, "ok")]


# ---- in a check ---------------------------------------------------------------------------------


async def question(_request: Request) -> producer.ChecksAnswer:
    check = producer.TransactionCheck("T1", producer.Message("orders", body=b"x"), "M1", 0)
    return producer.ChecksAnswer(0, None, [check])


@pytest.mark.parametrize("kind", [Producer, AsyncProducer])
async def test_a_check_closes_its_producer(proxy: ScriptedProxy, kind: Any) -> None:
    """Nothing waits for itself; the broker asks again."""
    proxy.script("transactionChecks", question)
    closed = threading.Event()

    def close(_message: PreparedMessage) -> Decision:
        sender.close()
        closed.set()
        return Decision.COMMIT

    async def close_and_wait(_message: PreparedMessage) -> Decision:
        closed.set()
        await sender.close()
        return Decision.COMMIT

    check = close if kind is Producer else close_and_wait
    transactions = Transactions(group="g", topics=["orders"], check=check)
    sender = kind(proxy.address, transactions=transactions)
    if kind is Producer:
        await asyncio.to_thread(sender.__enter__)
    else:
        await sender.__aenter__()
    await eventually(closed.is_set)
    await eventually(lambda: proxy.open_connections == 0)
    assert proxy.of("endTransaction") == []
