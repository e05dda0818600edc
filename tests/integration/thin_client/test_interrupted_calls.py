"""Calls that an interrupt ends, such as Ctrl-C or a time limit of a job: the next one works."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from testkit.scripted_proxy import Request, ScriptedProxy
from thin_client import Producer, Puller
from thin_client.connection import Connection

pytestmark = pytest.mark.sockets


class TimeLimit(Exception):
    """As a signal handler raises it in the main thread."""


def send(client: Producer) -> object:
    return client.send("orders", b"{}", key="k")


def pull(client: Puller) -> object:
    return client.pull(wait_s=0.1)


@pytest.mark.parametrize("error", [TimeLimit, KeyboardInterrupt])
@pytest.mark.parametrize(
    ("make", "use", "method"),
    [
        (Producer, send, "sendSync"),
        (lambda address: Puller(address, group="g"), pull, "pull"),
    ],
    ids=["producer", "puller"],
)
async def test_the_late_answer_is_not_taken_for_that_of_the_next_call(
    error: type[BaseException],
    make: Callable[[str], Any],
    use: Callable[[Any], object],
    method: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered = threading.Event()
    finish = Connection.finish

    def interrupted(self: Connection, call: Any, *, timeout_s: float) -> Any:
        with self._in_words(call, timeout_s):
            answered.set()
            raise error

    async def late(request: Request) -> Any:
        await asyncio.to_thread(answered.wait, 20)
        return await proxy.plainly(request)

    async with ScriptedProxy() as proxy:
        proxy.script(method, late)
        client = make(proxy.address)
        monkeypatch.setattr(Connection, "finish", interrupted)
        assert await asyncio.to_thread(raises, error, use, client)
        monkeypatch.setattr(Connection, "finish", finish)
        await asyncio.to_thread(use, client)
        client.close()


def raises(error: type[BaseException], use: Callable[[Any], object], client: Any) -> bool:
    """Return whether *use* raises *error*, in its thread: a future would pass on an interrupt."""
    try:
        use(client)
    except error:
        return True
    return False
