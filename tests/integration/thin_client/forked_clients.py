"""Clients created before a fork and used in the processes after it.

``python -m tests.integration.thin_client.forked_clients FORM ADDRESS`` prints a line of JSON with
each child's result.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier, Event
from typing import Any

from thin_client import AsyncConsumer, AsyncProducer, Consumer, Message, Producer, Puller, Timing

CHILDREN, EACH = 3, 20
_FORK = multiprocessing.get_context("fork")
_TIMING = Timing(request_timeout_s=20, drain_timeout_s=20)


def _terminate_a_child(consumer: Consumer | AsyncConsumer) -> None:
    """Handle two messages: the first one terminates a child, the second one ends the process."""

    def handle(message: Message) -> None:
        said: object = message.key
        if message.key == "a":
            runs = _FORK.Event()
            child = _FORK.Process(target=_run_on, args=(runs,), daemon=True)
            child.start()
            runs.wait(60)
            child.terminate()
            child.join(20)
            said = child.exitcode
            child.kill()
        else:
            os.kill(os.getpid(), signal.SIGTERM)
        sys.stdout.write(json.dumps({"child": message.lease_id, "said": said}) + "\n")
        sys.stdout.flush()

    if isinstance(consumer, Consumer):
        consumer.run(handle)
    else:
        asyncio.run(consumer.run(handle))


def _run_on(runs: Event) -> None:
    runs.set()
    time.sleep(600)


#: The consumers whose process terminates a child, by form.
TERMINATING: dict[str, type[Consumer | AsyncConsumer]] = {
    "blocking": Consumer,
    "loop": AsyncConsumer,
}


def in_children(work: Callable[[int], object]) -> None:
    """Run *work* in children, each with its number, and wait for them."""
    children = []
    for number in range(CHILDREN):
        child = os.fork()
        if child == 0:
            _run(work, number)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)


def _run(work: Callable[[int], object], number: int) -> None:
    try:
        said: Any = work(number)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    sys.stdout.write(json.dumps({"child": number, "said": said}) + "\n")
    sys.stdout.flush()
    os._exit(0)


def producer(address: str) -> None:
    """A producer that has sent before."""
    shared = Producer(address)
    shared.send("orders", b"before", key="parent")

    def send(number: int) -> int:
        for _ in range(EACH):
            shared.send("orders", str(os.getpid()), key=f"child {number}")
        return os.getpid()

    in_children(send)
    shared.send("orders", b"after", key="parent")


def busy_producer(address: str) -> None:
    """A producer whose lock another thread holds at the moment of the fork."""
    shared = Producer(address)
    sending = threading.Thread(target=shared.send, args=("slow", b"before"), daemon=True)
    sending.start()
    time.sleep(0.5)  # the proxy takes longer to answer
    in_children(lambda number: bool(shared.send("orders", b"x", key=f"child {number}")))
    sending.join()


def async_producer(address: str) -> None:
    """The asyncio form, in a loop of its own in each process."""
    shared = AsyncProducer(address)
    asyncio.run(_send(shared, "parent", 1))
    in_children(lambda number: asyncio.run(_send(shared, f"child {number}", EACH)))


def running_loop(address: str) -> None:
    """The asyncio form, forked inside its loop, which continues in the parent."""

    async def work() -> None:
        async with AsyncProducer(address) as shared:
            await shared.send("orders", b"before", key="parent")
            in_children(lambda number: asyncio.run(_send(shared, f"child {number}", EACH)))
            await shared.send("orders", b"after", key="parent")

    asyncio.run(work())


async def _send(shared: AsyncProducer, key: str, messages: int) -> int:
    for _ in range(messages):
        await shared.send("orders", str(os.getpid()), key=key)
    return os.getpid()


def puller(address: str) -> None:
    """One call after the other."""
    shared = Puller(address, group="g")
    shared.pull(wait_s=0.05)
    in_children(lambda number: len(shared.pull(wait_s=0.05)))
    shared.pull(wait_s=0.05)


def consumer(address: str) -> None:
    """A consumer that is started in each child."""
    shared = Consumer(address, group="g", concurrency=1, prefetch=0, timing=_TIMING)
    each_has_one = _FORK.Barrier(CHILDREN)
    in_children(lambda number: _first(shared, each_has_one))


def _first(shared: Consumer, each_has_one: Barrier) -> str | None:
    with shared:
        message = next(shared)
        with message:
            each_has_one.wait(60)  # a child that acks pulls again and takes another child's message
            return message.key


def async_consumer(address: str) -> None:
    """The asyncio form, started in each child."""
    shared = AsyncConsumer(address, group="g", concurrency=1, prefetch=0, timing=_TIMING)
    each_has_one = _FORK.Barrier(CHILDREN)

    async def first(number: int) -> str | None:
        async with shared:
            message = await anext(shared)
            async with message:
                await asyncio.to_thread(each_has_one.wait, 60)
                return message.key

    in_children(lambda number: asyncio.run(first(number)))


def started_consumer(address: str) -> None:
    """A consumer started before the fork: its messages are the parent's."""
    with Consumer(address, group="g", timing=_TIMING) as shared:
        message = next(shared)
        in_children(lambda number: next(shared))
        in_children(lambda number: shared.__exit__(None, None, None))
        with message:
            pass
        in_children(lambda number: shared.run(print))


if __name__ == "__main__":
    if (form := sys.argv[1]) in TERMINATING:
        _terminate_a_child(TERMINATING[form](sys.argv[2], group="g", timing=_TIMING))
    else:
        globals()[form](sys.argv[2])
