"""A message is acked only if its handler did its work, not for a result that represents it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import itertools
import logging
import multiprocessing.pool
import sqlite3
import subprocess
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from broker_core.tasks import spawn
from testkit.scripted_proxy import ScriptedProxy
from thin_client import (
    App,
    AsyncConsumer,
    Consumer,
    Defer,
    KeyBatch,
    Message,
    Reject,
    Retry,
    Timing,
)
from thin_client.handlers import check_result
from thin_client.tracing import Tracer

pytestmark = pytest.mark.sockets

PATIENT = Timing(ack_linger_s=0.02, request_timeout_s=20, drain_timeout_s=20)


@pytest.fixture
async def proxy() -> AsyncIterator[ScriptedProxy]:
    async with ScriptedProxy() as scripted:
        yield scripted


async def judged(
    proxy: ScriptedProxy, each: Consumer | AsyncConsumer, running: Any, verdicts: int = 1
) -> None:
    """Run a consumer until the proxy has received *verdicts* verdicts."""
    task = spawn(running, name="consumer")
    await proxy.until(lambda: len(proxy.verdicts) >= verdicts)
    each.stop()
    await task


async def handle(message: Message) -> None:
    raise AssertionError("it must not run")


class Asynchronous:
    async def __call__(self, message: Message) -> None:
        raise AssertionError("it must not run")


class WorksWhenMade:
    def __init__(self, message: Message) -> None:
        raise AssertionError("it must not be made")


def generate(message: Message) -> Any:
    yield message


async def generate_later(message: Message) -> Any:
    yield message


UNFIT_FOR_ALL = {
    "class": WorksWhenMade,
    "generator": generate,
    "asynchronous generator": generate_later,
    "bound generator": functools.partial(generate),
    "no function": 7,
}
UNFIT_FOR_THREADS = UNFIT_FOR_ALL | {
    "coroutine": handle,
    "bound coroutine": functools.partial(handle),
    "object": Asynchronous(),
    "bound object": functools.partial(Asynchronous()),
}


@pytest.mark.parametrize("handler", UNFIT_FOR_THREADS.values(), ids=UNFIT_FOR_THREADS)
@pytest.mark.parametrize("form", ["run", "run_batches"])
async def test_consumer_refuses_a_handler_it_cannot_run(
    proxy: ScriptedProxy, form: str, handler: Any
) -> None:
    """TypeError is raised before the first pull, so no message is leased or lost."""
    await proxy.put("a")
    each = Consumer(proxy.address, group="g", timing=PATIENT)

    with pytest.raises(TypeError, match=r"^the handler "):
        await asyncio.to_thread(getattr(each, form), handler, handle_signals=False)

    assert proxy.requests == []


@pytest.mark.parametrize("handler", UNFIT_FOR_ALL.values(), ids=UNFIT_FOR_ALL)
@pytest.mark.parametrize("form", ["run", "run_batches"])
async def test_async_consumer_refuses_a_handler_it_cannot_run(
    proxy: ScriptedProxy, form: str, handler: Any
) -> None:
    """A call of a generator function or a class does no work in the asyncio form either."""
    each = AsyncConsumer(proxy.address, group="g", timing=PATIENT)

    with pytest.raises(TypeError, match=r"^the handler "):
        await getattr(each, form)(handler, handle_signals=False)

    assert proxy.requests == []


def test_app_refuses_at_the_decorator() -> None:
    """The decorator checks the handler immediately."""
    with pytest.raises(TypeError, match="generator function"):
        App("127.0.0.1:1", group="g").on("orders")(generate)


def decorated(message: Message) -> Any:
    return handle(message)


def in_a_list(message: Message) -> Any:
    return [handle(message), None]


def curried(message: Message) -> Any:
    return lambda: handle(message)


def generated(message: Message) -> Any:
    return (each for each in message.body)


def pending(message: Message) -> Any:
    return concurrent.futures.Future()


def mapped(message: Message) -> Any:
    return map(handle, [message])


def filtered(message: Message) -> Any:
    return filter(handle, [message])


def in_a_set(message: Message) -> Any:
    return {handle(message)}


def by_name(message: Message) -> Any:
    return {"work": handle(message)}


def starred(message: Message) -> Any:
    return itertools.starmap(handle, [(message,)])


def zipped(message: Message) -> Any:
    return zip(map(handle, [message]), strict=True)


@contextlib.contextmanager
def managed(message: Message) -> Any:
    yield message


@contextlib.asynccontextmanager
async def managed_later(message: Message) -> Any:
    yield message


def pooled(message: Message) -> Any:
    pool = multiprocessing.pool.ThreadPool(1)
    try:
        return pool.apply_async(threading.Event().wait, (5,))
    finally:
        pool.close()


def scheduled(message: Message) -> Any:
    loop = asyncio.new_event_loop()
    try:
        return loop.call_later(60, handle, message)
    finally:
        loop.close()


def scheduled_together(message: Message) -> Any:
    return deque([scheduled(message)])


def timed(message: Message) -> Any:
    return threading.Timer(60, handle, [message])


def other_process(message: Message) -> Any:
    return multiprocessing.get_context("spawn").Process(target=handle, args=[message])


RESULTS: dict[str, Callable[[Message], Any]] = {
    "coroutine": decorated,
    "list of coroutines": in_a_list,
    "function": curried,
    "generator": generated,
    "future": pending,
    "map": mapped,
    "filter": filtered,
    "set of coroutines": in_a_set,
    "dict of coroutines": by_name,
    "starmap": starred,
    "zip": zipped,
    "context manager": managed,
    "asynchronous context manager": managed_later,
    "pool": pooled,
    "scheduled callback": scheduled,
    "deque of scheduled callbacks": scheduled_together,
    "thread": timed,
    "process": other_process,
}


def test_a_cursor_means_that_its_statement_has_run() -> None:
    with sqlite3.connect(":memory:") as database:
        check_result(database.execute("select 1"))


def test_threads_and_programs_that_have_ended_mean_that_their_work_has_run() -> None:
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    check_result(thread)
    program = subprocess.Popen([sys.executable, "-c", ""])
    program.wait()
    check_result(program)
    check_result(subprocess.run([sys.executable, "-c", ""], check=True))


def test_a_program_that_runs_means_that_its_work_is_not_done() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as program:
        with pytest.raises(TypeError, match="the handler returned a process that runs"):
            check_result(program)
        program.kill()


@pytest.mark.failing_tasks
async def test_the_result_of_wait_counts_as_what_it_waited_for() -> None:
    """Finished work counts by its end; a handler whose work is not finished acks nothing."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        of_threads = [pool.submit(int, text) for text in ("1", "one")]
        check_result(concurrent.futures.wait(of_threads[:1]))
        with pytest.raises(ValueError, match="invalid literal"):
            check_result(concurrent.futures.wait(of_threads))
    with pytest.raises(TypeError, match="a Future that is not done"):
        check_result(concurrent.futures.wait([concurrent.futures.Future()], timeout=0))

    tasks = [spawn(asyncio.to_thread(int, text), name="wait") for text in ("1", "one")]
    await asyncio.wait(tasks)
    check_result(await asyncio.wait(tasks[:1]))
    with pytest.raises(ValueError, match="invalid literal"):
        check_result(await asyncio.wait(tasks))
    unfinished = asyncio.get_running_loop().create_future()
    with pytest.raises(TypeError, match="a Future that was not awaited"):
        check_result(await asyncio.wait([unfinished], timeout=0))


@pytest.mark.parametrize("handler", RESULTS.values(), ids=RESULTS)
@pytest.mark.parametrize("tracer", [None, Tracer()], ids=["plain", "traced"])
async def test_a_result_that_has_not_run_is_retried(
    proxy: ScriptedProxy,
    caplog: pytest.LogCaptureFixture,
    handler: Callable[[Message], Any],
    tracer: Tracer | None,
) -> None:
    """Work hidden by a decorator or lambda is detected in the result, and logged."""
    await proxy.put("a")
    each = Consumer(proxy.address, group="g", timing=PATIENT, tracer=tracer)
    work = asyncio.to_thread(each.run, handler, handle_signals=False)
    await judged(proxy, each, work)

    assert proxy.verdicts == [(1, "retry")]
    (record,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert record.exc_info is not None
    assert "so its work has not run" in str(record.exc_info[1])


async def test_a_batch_that_has_not_run_is_retried(proxy: ScriptedProxy) -> None:
    """Such a result acks no message of a batch."""
    await proxy.put("a", "a")

    async def handle_all(batch: KeyBatch) -> None:
        raise AssertionError("it must not run")

    def decorated_all(batch: KeyBatch) -> Any:
        return handle_all(batch)

    each = Consumer(proxy.address, group="g", timing=PATIENT, max_run=2)
    work = asyncio.to_thread(each.run_batches, decorated_all, handle_signals=False)
    await judged(proxy, each, work, verdicts=2)

    assert sorted(proxy.verdicts) == [(1, "retry"), (2, "defer")]


async def nested(message: Message, ran: list[str | None]) -> Any:
    async def work() -> None:
        await asyncio.sleep(0.05)
        ran.append(message.key)

    return work()


async def tasked(message: Message, ran: list[str | None]) -> Any:
    return spawn(await nested(message, ran), name="work")


def from_a_thread(message: Message, ran: list[str | None]) -> Any:
    return nested(message, ran)


@pytest.mark.parametrize("handler", [nested, tasked, from_a_thread])
async def test_async_consumer_awaits_to_the_end(
    proxy: ScriptedProxy, handler: Callable[..., Any]
) -> None:
    """An awaitable result is awaited before the ack, repeatedly if it returns another one."""
    await proxy.put("a")
    ran: list[str | None] = []
    each = AsyncConsumer(proxy.address, group="g", timing=PATIENT)
    work = each.run(functools.partial(handler, ran=ran), handle_signals=False)
    await judged(proxy, each, work)

    assert (ran, proxy.verdicts) == (["a"], [(1, "ok")])


@pytest.mark.parametrize("outcome", [Retry(), Reject("bad"), Defer(), ValueError("no")])
async def test_an_outcome_that_is_returned_counts(proxy: ScriptedProxy, outcome: Exception) -> None:
    """A handler that returns an exception instead of raising it acks nothing, in either form."""
    await proxy.put("a")
    said = {Reject: "reject", Defer: "defer"}.get(type(outcome), "retry")
    handler: Any = lambda message: outcome  # noqa: E731
    each = Consumer(proxy.address, group="g", timing=PATIENT)
    await judged(proxy, each, asyncio.to_thread(each.run, handler, handle_signals=False))
    await proxy.put("b")
    other = AsyncConsumer(proxy.address, group="g", timing=PATIENT)
    await judged(proxy, other, other.run(handler, handle_signals=False), verdicts=2)

    assert proxy.verdicts == [(1, said), (2, said)]


async def test_failures_that_are_returned_together_count(proxy: ScriptedProxy) -> None:
    """As ``gather(..., return_exceptions=True)`` returns them."""

    async def work(number: int) -> None:
        if number == 2:
            raise Reject("no such customer")

    async def handler(message: Message) -> Any:
        return await asyncio.gather(*map(work, (1, 2, 3)), return_exceptions=True)

    await proxy.put("a")
    each = AsyncConsumer(proxy.address, group="g", timing=PATIENT)
    await judged(proxy, each, each.run(handler, handle_signals=False))

    assert proxy.verdicts == [(1, "reject")]


@pytest.mark.parametrize("handler", [curried, generated, pending])
async def test_async_consumer_retries_what_it_cannot_await(
    proxy: ScriptedProxy, handler: Callable[[Message], Any]
) -> None:
    """A function or generator as the result of a plain handler is not acked."""
    await proxy.put("a")
    each = AsyncConsumer(proxy.address, group="g", timing=PATIENT)
    work = each.run(handler, handle_signals=False)
    await judged(proxy, each, work)

    assert proxy.verdicts == [(1, "retry")]


async def test_stop_iteration_does_not_hold_a_message(proxy: ScriptedProxy) -> None:
    """A plain handler that raises StopIteration fails like any other, though no future can."""

    def exhausted(message: Message) -> None:
        next(iter(()))

    await proxy.put("a")
    each = AsyncConsumer(proxy.address, group="g", timing=PATIENT)
    work = each.run(exhausted, handle_signals=False)
    await judged(proxy, each, work)

    assert proxy.verdicts == [(1, "retry")]
