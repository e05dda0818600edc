from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from testkit.eventually import eventually
from testkit.scripted_proxy import HangUp, Request, ScriptedProxy
from thin_client import Consumer, Message, Observer, Refused, Reject, Timing
from thrift_idl import consumer

pytestmark = pytest.mark.sockets

#: No request times out on a slow machine: repeats would arrive twice.
PATIENT = Timing(ack_linger_s=0.02, request_timeout_s=20, drain_timeout_s=20)


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy() as scripted:
        yield scripted


def consumer_of(proxy: ScriptedProxy, **options) -> Consumer:
    return Consumer(
        proxy.address, **{"group": "g", "topics": ["orders"], "timing": PATIENT, **options}
    )


class Running:
    """A consumer whose handler form runs in a thread, stopped at the end."""

    def __init__(self, each: Consumer, handler: Callable[[Message], object]) -> None:
        self._consumer = each
        self._run = asyncio.get_running_loop().create_task(
            asyncio.to_thread(each.run, handler, handle_signals=False)
        )

    async def __aenter__(self) -> None:
        pass

    async def __aexit__(self, *exc_info: object) -> None:
        self._consumer.stop()
        await asyncio.wait_for(self._run, 60)


async def test_acks_ride_on_the_next_pull(proxy: ScriptedProxy) -> None:
    """The iterator's messages are acked at the end of their scope, with the next pull."""
    await proxy.put(*"abcd")

    def work() -> list[str | None]:
        seen = []
        with consumer_of(proxy, concurrency=1, prefetch=0) as each:
            for message in each:
                with message:
                    seen.append(message.key)
                if len(seen) == 4:
                    break
        return seen

    assert await asyncio.to_thread(work) == list("abcd")
    assert [request.verdicts for request in proxy.of("pull")[:4]] == [
        [],
        [(1, "ok")],
        [(2, "ok")],
        [(3, "ok")],
    ]
    assert len(proxy.verdicts) == 4


async def test_acks_are_flushed_at_once_while_a_pull_waits(proxy: ScriptedProxy) -> None:
    """With a pull parked at the proxy a verdict comes by settle, long before that pull ends."""
    release = threading.Event()
    timing = Timing(ack_linger_s=30, request_timeout_s=20)
    proxy.lease_for(40_000)  # a pull waits for a quarter of it
    await proxy.put("a")
    each = consumer_of(proxy, timing=timing)
    async with Running(each, lambda message: release.wait(30)):
        await proxy.until(lambda: len(proxy.of("pull")) == 2 and proxy.waiting_pulls == 1)
        release.set()
        await proxy.until(lambda: bool(proxy.of("settle")))
        assert (len(proxy.of("pull")), proxy.waiting_pulls) == (2, 1)
        each.stop()
        await proxy.put("b")  # ends the pull; the drain would wait for it

    assert proxy.of("settle")[0].verdicts == [(1, "ok")]


async def test_handlers_run_side_by_side_but_not_in_a_key(
    proxy: ScriptedProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """Threads handle different keys in parallel, and never two messages of one key."""
    together = threading.Barrier(3, timeout=20)
    running: set[str | None] = set()
    seen: list[str] = []

    def handle(message: Message) -> None:
        assert message.key not in running
        running.add(message.key)
        if message.offset in (0, 1, 2):
            together.wait()
        seen.append(f"{message.key}{message.offset}")
        running.discard(message.key)
        if message.key == "b":
            raise ValueError("bad")
        if message.key == "c":
            raise Reject("worse")

    await proxy.put(*"abcaab")
    with caplog.at_level(logging.CRITICAL, logger="orderlane"):
        async with Running(consumer_of(proxy), handle):
            await proxy.until(lambda: len(proxy.verdicts) == 6)

    assert sorted(proxy.verdicts) == [
        (1, "ok"),
        (2, "retry"),
        (3, "reject"),
        (4, "ok"),
        (5, "ok"),
        (6, "defer"),  # in a run with the second message, behind it
    ]
    assert [each for each in seen if each[0] == "a"] == ["a0", "a3", "a4"]


async def test_lost_connection_sends_the_acks_again(proxy: ScriptedProxy) -> None:
    """Verdicts of an unanswered pull are sent again, and pulling continues."""

    async def hang_up(request: Request) -> None:
        raise HangUp

    await proxy.put("a")
    proxy.script("pull", proxy.plainly, hang_up)
    async with Running(consumer_of(proxy, concurrency=1, prefetch=0), lambda message: None):
        await proxy.until(lambda: proxy.verdicts.count((1, "ok")) == 2)
        await proxy.put("b")
        await proxy.until(lambda: (2, "ok") in proxy.verdicts)


async def test_leases_are_extended_and_losses_reported(proxy: ScriptedProxy) -> None:
    """A slow handler's lease is extended at a third; the handler learns of a refusal."""
    proxy.lease_for(200)
    both, told = threading.Barrier(2, timeout=20), threading.Event()

    def handle(message: Message) -> None:
        both.wait()  # on a slow machine the lease would be lost before handling
        proxy.lose(2)
        told.wait(30)

    class Watch(Observer):
        def on_lease_lost(self, message: Message) -> None:
            assert message.lease_lost
            told.set()

    await proxy.put(*"ab")
    each = consumer_of(proxy, concurrency=2, prefetch=0, observer=Watch())
    async with Running(each, handle):
        await proxy.until(lambda: len(proxy.verdicts) == 2)

    assert [ref.leaseId for ref in proxy.of("extend")[0].argument.leases] == [1, 2]


@pytest.mark.parametrize("still_held", [True, False])
async def test_late_answers_are_confirmed_first(proxy: ScriptedProxy, still_held: bool) -> None:
    """Messages of an answer later than the lease is long are handled only after an extend."""
    proxy.lease_for(100)
    handled = []

    async def late(request: Request) -> consumer.PullResponse:
        await asyncio.sleep(0.15)
        return proxy.batch(consumer.Message(value=b"", offset=0, leaseId=77, key="late"))

    def handle(message: Message) -> None:
        assert proxy.of("extend")
        handled.append(message.key)

    if not still_held:
        proxy.lose(77)
    proxy.script("pull", late)
    async with Running(consumer_of(proxy), handle):
        await proxy.until(lambda: bool(proxy.of("extend")))
        await proxy.until(lambda: len(proxy.of("pull")) > 3)
        if still_held:  # a confirmed lease may expire again on a slow machine
            await eventually(lambda: bool(handled))

    assert handled == (["late"] if still_held else [])


async def test_a_run_goes_back_with_its_first_failure(proxy: ScriptedProxy) -> None:
    """In one request, without handling the rest; the client requested runs."""
    handled = []

    def handle(message: Message) -> None:
        handled.append(message.lease_id)
        if message.lease_id == 2:
            raise Reject("worse")

    await proxy.put(*"aaaa")
    async with Running(consumer_of(proxy, max_run=4), handle):
        await proxy.until(lambda: len(proxy.verdicts) == 4)

    assert handled == [1, 2]
    asked = [*proxy.of("pull"), *proxy.of("settle")]
    (together,) = [each.verdicts for each in asked if (2, "reject") in each.verdicts]
    assert together[-3:] == [(2, "reject"), (3, "defer"), (4, "defer")]
    assert {each.argument.maxRun for each in proxy.of("pull")} == {4}
    assert proxy.of("pull")[0].argument.maxBatchSize == 16


async def test_unknown_group_is_one_sentence(proxy: ScriptedProxy) -> None:
    """A final refusal ends both forms with the proxy's sentence."""

    async def refuse(request: Request) -> None:
        raise consumer.PullException(404, "there is no group 'g'; there are: billing")

    def iterate() -> None:
        with consumer_of(proxy) as each:
            next(each)

    proxy.script("pull", refuse, refuse)
    with pytest.raises(Refused, match="refused pull: there is no group 'g'"):
        await asyncio.to_thread(consumer_of(proxy).run, print, handle_signals=False)
    with pytest.raises(Refused, match="refused pull: there is no group 'g'"):
        await asyncio.to_thread(iterate)


async def test_drain_finishes_and_gives_back(proxy: ScriptedProxy) -> None:
    """After stop, handled messages are acked, waiting ones released, and nothing is pulled."""
    started, go_on = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        started.set()
        go_on.wait(60)

    await proxy.put(*"abc")
    each = consumer_of(proxy, concurrency=1, prefetch=2)
    async with Running(each, handle):
        await asyncio.to_thread(started.wait, 30)
        each.stop()
        await proxy.until(lambda: sorted(proxy.verdicts) == [(2, "defer"), (3, "defer")])
        pulls = len(proxy.of("pull"))
        go_on.set()
        await proxy.until(lambda: (1, "ok") in proxy.verdicts)  # the exit's stop does not wait

    assert len(proxy.of("pull")) == pulls


async def test_a_handler_over_time_keeps_its_message(proxy: ScriptedProxy) -> None:
    """A thread cannot be cancelled: after the drain time-out its message is not returned."""
    started, go_on = threading.Event(), threading.Event()

    def handle(message: Message) -> None:
        started.set()
        go_on.wait(60)

    await proxy.put("a")
    timing = Timing(drain_timeout_s=0.05, request_timeout_s=20)
    async with Running(consumer_of(proxy, timing=timing, concurrency=1, prefetch=0), handle):
        await asyncio.to_thread(started.wait, 30)
    go_on.set()

    assert proxy.verdicts == []


SCRIPT = """
import sys, time
from thin_client import Consumer, Timing
def handle(message):
    print("started", flush=True)
    time.sleep(0.2)
timing = Timing(request_timeout_s=20)
Consumer(sys.argv[1], group="g", concurrency=1, prefetch=0, timing=timing).run(handle)
print("drained", flush=True)
"""


async def test_sigterm_drains(proxy: ScriptedProxy) -> None:
    """On SIGTERM a process finishes its message, acks it, and exits."""
    await proxy.put("a")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRIPT, proxy.address, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"started\n"
    os.kill(process.pid, signal.SIGTERM)

    assert await asyncio.wait_for(process.stdout.read(), 60) == b"drained\n"
    assert await process.wait() == 0
    assert proxy.verdicts == [(1, "ok")]


async def test_iterator_gives_back_what_was_not_entered(proxy: ScriptedProxy) -> None:
    """Leaving the loop before a message's scope returns the message, and does not wait for it."""
    await proxy.put("a")

    def work() -> None:
        with consumer_of(proxy, concurrency=1, prefetch=0) as each:
            next(each)

    await asyncio.to_thread(work)

    assert proxy.verdicts == [(1, "defer")]


def test_iterator_without_start_says_how() -> None:
    """The loop needs the consumer's own scope around it."""
    with pytest.raises(RuntimeError, match="use 'with' around the loop"):
        iter(Consumer("127.0.0.1:1", group="g"))


@pytest.mark.parametrize("scarce", ["orderlane pull", "orderlane handler 1", "orderlane settle"])
async def test_a_thread_that_cannot_start_ends_the_consumer_and_no_message_is_held(
    proxy: ScriptedProxy, monkeypatch: pytest.MonkeyPatch, scarce: str
) -> None:
    await proxy.put(*"ab")
    start = threading.Thread.start

    def start_or_fail(thread: threading.Thread) -> None:
        if thread.name.startswith(scarce):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_or_fail)
    timing = Timing(request_timeout_s=2, drain_timeout_s=1)
    each = consumer_of(proxy, concurrency=2, timing=timing)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        await asyncio.to_thread(each.run, lambda message: None, handle_signals=False)
    if scarce == "orderlane settle":  # a pull has brought both
        assert {lease for lease, _ in proxy.verdicts} == {1, 2}
    await eventually(lambda: not any(t.name.startswith("orderlane") for t in threading.enumerate()))
