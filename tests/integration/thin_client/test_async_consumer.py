from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from testkit.scripted_proxy import HangUp, Request, ScriptedProxy
from tests.integration.thin_client import async_consumers
from tests.integration.thin_client.async_consumers import Running
from thin_client import (
    AsyncConsumer,
    ClientError,
    Defer,
    Message,
    Observer,
    ProtocolError,
    Refused,
    Reject,
    Retry,
    Timing,
)
from thrift_idl import consumer

#: No request times out on a slow machine: repeats would arrive twice.
PATIENT = Timing(ack_linger_s=0.02, request_timeout_s=20, drain_timeout_s=20)


def consumer_of(proxy: ScriptedProxy, **options: Any) -> AsyncConsumer:
    return async_consumers.consumer_of(proxy, **{"timing": PATIENT, **options})


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy() as scripted:
        yield scripted


async def test_the_first_pull_has_all_fields(proxy: ScriptedProxy) -> None:
    """The first pull has group, topics, client, room and wait, and no field of later versions."""
    async with consumer_of(proxy, client_id="me", concurrency=3, prefetch=2):
        await proxy.until(lambda: bool(proxy.requests))
    request = proxy.requests[0].argument

    assert (request.groupId, request.topics, request.clientId) == ("g", ["orders"], "me")
    assert (request.maxBatchSize, request.maxLingerTime, request.manyQueues) == (5, 1000, True)
    assert request.version.startswith("orderlane-python")
    assert (request.maxRun, request.topic, request.acks) == (None,) * 3
    assert request.requestId


async def test_acks_ride_on_the_next_pull(proxy: ScriptedProxy) -> None:
    """In a steady stream verdicts need no separate request."""
    await proxy.put(*"abcd")

    async with consumer_of(proxy, concurrency=1, prefetch=0) as each:
        async for message in each:
            async with message:
                if message.key == "d":
                    break
        await proxy.until(lambda: len(proxy.verdicts) == 4)

    pulls = [request.verdicts for request in proxy.of("pull")[:4]]
    assert pulls == [[], [(1, "ok")], [(2, "ok")], [(3, "ok")]]


async def test_acks_are_flushed_at_once_while_a_pull_waits(proxy: ScriptedProxy) -> None:
    """With a pull parked at the proxy a verdict comes by settle, long before that pull ends."""
    release = asyncio.Event()

    async def handle(message: Message) -> None:
        await release.wait()

    proxy.lease_for(40_000)  # a pull waits for a quarter of it
    await proxy.put("a")
    timing = Timing(ack_linger_s=30, request_timeout_s=20)
    async with Running(consumer_of(proxy, timing=timing), handle) as running:
        await proxy.until(lambda: len(proxy.of("pull")) == 2 and proxy.waiting_pulls == 1)
        release.set()
        await proxy.until(lambda: bool(proxy.of("settle")))
        assert (len(proxy.of("pull")), proxy.waiting_pulls) == (2, 1)
        running.consumer.stop()
        await proxy.put("b")  # ends the pull; the drain would wait for it

    assert proxy.of("settle")[0].verdicts == [(1, "ok")]


async def test_an_idle_buffer_flushes_after_the_linger(proxy: ScriptedProxy) -> None:
    """With enough prefetched messages no pull is due, so the linger limits an ack's wait."""
    blocked = asyncio.Event()

    async def handle(message: Message) -> None:
        if message.key != "a":
            await blocked.wait()

    await proxy.put(*"abcdefgh")
    async with Running(consumer_of(proxy, concurrency=2, prefetch=6), handle):
        await proxy.until(lambda: bool(proxy.of("settle")))
        assert len(proxy.of("pull")) == 1
        blocked.set()

    assert proxy.of("settle")[0].verdicts == [(1, "ok")]


async def test_outcomes_become_verdicts(
    proxy: ScriptedProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """The handler's exception decides; a plain one is logged and reported to the operator."""
    raised: dict[str, Exception] = {
        "b": Retry(1.5),
        "c": Reject("schema"),
        "d": Defer(),
        "e": ValueError("no \ud800 amount"),
    }

    async def handle(message: Message) -> None:
        if message.key in raised:
            raise raised[message.key]

    await proxy.put(*"abcde")
    with caplog.at_level(logging.WARNING, logger="orderlane"):
        async with Running(consumer_of(proxy), handle):
            await proxy.until(lambda: len(proxy.verdicts) == 5)

    assert sorted(proxy.verdicts) == [
        (1, "ok"),
        (2, "retry"),
        (3, "reject"),
        (4, "defer"),
        (5, "retry"),
    ]
    nacks = {
        nack.leaseId: nack
        for request in proxy.of("pull") + proxy.of("settle")
        for batch in request.argument.acks or ()
        for nack in batch.nacked or ()
    }
    assert nacks[2].retryAfterMs == 1500
    assert nacks[3].reason == "schema"
    assert nacks[5].reason == "ValueError: no ? amount"
    assert "at offset 4 (attempt 1) failed; it will be retried" in caplog.text


async def test_one_key_never_twice_at_once(proxy: ScriptedProxy) -> None:
    """Even if the proxy delivers two messages of a key, their handlers do not overlap."""
    running: set[str | None] = set()
    seen: list[tuple[str | None, int]] = []

    async def handle(message: Message) -> None:
        assert message.key not in running
        running.add(message.key)
        await asyncio.sleep(0.005)
        running.discard(message.key)
        seen.append((message.key, message.offset))

    await proxy.put(*"aaabbbab")
    async with Running(consumer_of(proxy), handle):
        await proxy.until(lambda: len(proxy.verdicts) == 8)

    assert {verdict for _, verdict in proxy.verdicts} == {"ok"}
    assert [offset for key, offset in seen if key == "a"] == [0, 1, 2, 6]


async def test_handlers_run_side_by_side(proxy: ScriptedProxy) -> None:
    """Exactly ``concurrency`` messages are handled at a time."""
    at_once = peak = 0
    all_in = asyncio.Event()

    async def handle(message: Message) -> None:
        nonlocal at_once, peak
        at_once += 1
        peak = max(peak, at_once)
        if at_once == 4:
            all_in.set()
        await asyncio.wait_for(all_in.wait(), 20)
        at_once -= 1

    await proxy.put(*map(str, range(12)))
    async with Running(consumer_of(proxy, concurrency=4), handle):
        await proxy.until(lambda: len(proxy.verdicts) == 12)

    assert peak == 4


@pytest.mark.sockets
async def test_plain_functions_run_in_threads(proxy: ScriptedProxy) -> None:
    """A blocking handler delays neither the loop nor other handlers."""
    together = threading.Barrier(3, timeout=20)

    def handle(message: Message) -> None:
        together.wait()

    await proxy.put(*"abc")
    async with Running(consumer_of(proxy, concurrency=3), handle):
        await proxy.until(lambda: len(proxy.verdicts) == 3)

    assert {verdict for _, verdict in proxy.verdicts} == {"ok"}


async def test_lost_connection_sends_the_acks_again(proxy: ScriptedProxy) -> None:
    """Verdicts of an unanswered pull are sent again, and pulling continues."""

    async def hang_up(request: Request) -> None:
        raise HangUp

    proxy.lease_for(8_000)  # once it must have expired, pulls have a new ID
    await proxy.put("a")
    async with consumer_of(proxy, concurrency=1, prefetch=0) as each:
        first = await anext(each)
        proxy.script("pull", hang_up)
        async with first:
            pass
        await proxy.until(lambda: proxy.verdicts.count((1, "ok")) == 2)
        await proxy.put("b")
        second = await anext(each)
        async with second:
            pass

    assert second.key == "b"
    ids = [request.argument.requestId for request in proxy.of("pull")]
    assert ids[1] == ids[2] != ids[0]


async def test_the_next_proxy_is_tried(proxy: ScriptedProxy) -> None:
    """A dead address in the list costs a moment, not the consumer."""
    async with ScriptedProxy() as dead:
        pass
    errors: list[ClientError] = []
    pulled: list[int] = []
    observer = Observer()
    observer.on_error = errors.append  # type: ignore[method-assign]
    observer.on_pulled = pulled.append  # type: ignore[method-assign]
    await proxy.put("a")
    servers = f"{dead.address},{proxy.address}"

    async with AsyncConsumer(servers, group="g", timing=PATIENT, observer=observer) as each:
        async with asyncio.timeout(20):
            message = await anext(each)
        async with message:
            pass

    assert str(errors[0]).startswith(f"no connection to {dead.address}")
    assert pulled[0] == 1


async def test_unknown_group_is_one_sentence(proxy: ScriptedProxy) -> None:
    """A final refusal ends the consumer with the proxy's sentence."""

    async def refuse(request: Request) -> None:
        raise consumer.PullException(404, "there is no group 'g'; there are: billing")

    proxy.script("pull", refuse)
    with pytest.raises(Refused) as caught:
        await consumer_of(proxy).run(lambda message: None, handle_signals=False)

    assert caught.value.code == 404
    assert str(caught.value) == (
        f"{proxy.address} refused pull: there is no group 'g'; there are: billing"
    )


async def test_a_refusal_for_now_is_tried_again(proxy: ScriptedProxy) -> None:
    """The consumer continues after codes of 500 and above."""

    async def busy(request: Request) -> None:
        raise consumer.PullException(503, "shutting down")

    proxy.script("pull", busy)
    await proxy.put("a")
    async with consumer_of(proxy) as each:
        async with asyncio.timeout(20):
            async with await anext(each) as message:
                pass

    assert message.key == "a"


async def test_another_kind_of_server_is_named() -> None:
    """Pulling from an HTTP port raises an error that names the right port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = "{}:{}".format(*server.sockets[0].getsockname())
    with pytest.raises(ProtocolError, match="connect to the Thrift port of an orderlane proxy"):
        await AsyncConsumer(address, group="g", timing=PATIENT).run(print, handle_signals=False)
    server.close()


async def test_iterator_scope_outcomes(proxy: ScriptedProxy) -> None:
    """A scope's exception means retry and does not end the loop around it."""
    await proxy.put(*"abc")
    seen = []
    async with consumer_of(proxy) as each:
        async for message in each:
            async with message:
                seen.append(message.key)
                if message.key == "a":
                    raise ValueError("bad")
                if message.key == "b":
                    raise Reject("worse")
            if message.key == "c":
                break

    assert seen == ["a", "b", "c"]
    assert sorted(proxy.verdicts) == [(1, "retry"), (2, "reject"), (3, "ok")]


async def test_iterator_gives_back_what_was_not_entered(proxy: ScriptedProxy) -> None:
    """Leaving the loop before a message's scope returns the message, and does not wait for it."""
    await proxy.put("a")
    async with consumer_of(proxy, concurrency=1, prefetch=0) as each:
        message = await anext(each)
    with pytest.raises(RuntimeError, match="cannot be entered"):
        async with message:
            pass

    assert proxy.verdicts == [(1, "defer")]


async def test_iterator_without_start_says_how() -> None:
    """The loop needs the consumer's own scope around it."""
    with pytest.raises(RuntimeError, match="async with"):
        aiter(AsyncConsumer("127.0.0.1:1", group="g"))


async def test_observer_sees_each_message(proxy: ScriptedProxy) -> None:
    """Histories are written from the hooks: start, end with its outcome, settled."""
    told: list[object] = []

    class Tell(Observer):
        def on_handle_start(self, message: Message) -> None:
            told.append(("start", message.message_id))

        def on_handle_end(self, message: Message, outcome: str) -> None:
            told.append(("end", message.message_id, outcome))

        def on_settled(self, settled: int, not_held: int) -> None:
            told.append(("settled", settled, not_held))

    proxy.lose(1)
    await proxy.put("a")
    async with consumer_of(proxy, observer=Tell()) as each, await anext(each):
        await proxy.until(lambda: proxy.waiting_pulls == 1)

    assert told == [("start", "M1"), ("end", "M1", "ok"), ("settled", 1, 1)]


async def test_without_home_settling_goes_where_pulls_go(proxy: ScriptedProxy) -> None:
    """A proxy that does not report its address receives verdicts too."""
    proxy.hide_home()
    await proxy.put("a")
    async with consumer_of(proxy) as each, await anext(each):
        pass

    assert proxy.verdicts == [(1, "ok")]


async def test_an_unreachable_home_falls_back(proxy: ScriptedProxy) -> None:
    """Behind a forwarded port the proxy's own address is unreachable; the configured one works."""

    async def elsewhere(request: Request) -> consumer.PullResponse:
        message = consumer.Message(value=b"", offset=0, leaseId=5)
        return proxy.batch(message, home="127.0.0.1:1")

    proxy.script("pull", elsewhere)
    async with consumer_of(proxy) as each, await anext(each):
        await proxy.until(lambda: proxy.waiting_pulls == 1)

    assert proxy.of("settle")[0].verdicts == [(5, "ok")]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"group": ""}, "group is empty"),
        ({"topics": "orders"}, r"expected a list, as in \['orders'\]"),
        ({"topics": []}, "None for all topics"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"prefetch": -1}, "prefetch is -1"),
        ({"servers": "proxy:0"}, "is not a proxy address"),
        ({"servers": []}, "at least one host:port"),
    ],
)
def test_wrong_options_say_what_is_right(options: dict, sentence: str) -> None:
    arguments = {"servers": "proxy:9713", "group": "g", **options}
    with pytest.raises((ValueError, TypeError), match=sentence):
        AsyncConsumer(arguments.pop("servers"), **arguments)
