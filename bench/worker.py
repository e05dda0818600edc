"""A consumer as a separate process: ``python -m bench.worker``.

Its handlers are quick, except for stuck keys: until the first SIGUSR1 those hang, or always fail
(``--fail``). Five times a second it prints one line of JSON with its counts so far: ``others`` and
``stuck`` messages, ``repeated`` ones, and ``faults``, messages that arrived before an earlier one
of their key. With ``--delays`` each line also has ``delays_us``: the time since ``sent_ns`` of the
messages since the previous line.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
import uvloop

from bench.preload import STUCK
from broker_core.clock import now_ns
from broker_core.tasks import cancel_and_wait, spawn
from proxy.cli.history_observer import HistoryObserver
from proxy.cli.output import print_json
from proxy.cli.serving import open_history
from proxy.observe.logs import configure_logs
from thin_client import AsyncConsumer, Defer, Message, Retry

_SAY_S = 0.2


class _Handler:
    """The handler.

    *exact*: this consumer receives all messages of a key, so it can check their numbers.
    """

    def __init__(self, *, work_ms: float, exact: bool, fail: bool, delays: bool = False) -> None:
        self.free = asyncio.Event()  # set when stuck keys are released, or at the end
        self.ending = False
        self._fail = fail
        self._work_s = work_ms / 1000
        self._exact = exact
        self._delays_us: list[int] | None = [] if delays else None
        self._next: dict[str, int] = {}
        self._counts = {"others": 0, "stuck": 0, "repeated": 0, "faults": 0}

    async def __call__(self, message: Message) -> None:
        key = message.key or ""
        stuck = key.startswith(STUCK)
        if stuck and not self.free.is_set():
            if self._fail:
                raise Retry
            await self.free.wait()
            if self.ending:
                raise Defer
        elif self._work_s:
            await asyncio.sleep(self._work_s)
        if self._delays_us is not None:
            self._delays_us.append((now_ns() - orjson.loads(message.body)["sent_ns"]) // 1000)
        if self._exact:
            self._judge(key, orjson.loads(message.body)["n"])
        self._counts["stuck" if stuck else "others"] += 1

    def _judge(self, key: str, number: int) -> None:
        expected = self._next.get(key, 0)
        if number < expected:
            self._counts["repeated"] += 1
        else:
            self._counts["faults"] += number > expected
            self._next[key] = number + 1

    async def say(self) -> None:
        """Print the counts periodically."""
        while True:
            self.say_now()
            await asyncio.sleep(_SAY_S)

    def say_now(self) -> None:
        """Print the counts."""
        line: dict[str, Any] = {"t_s": round(now_ns() / 1e9, 3), **self._counts}
        if self._delays_us is not None:
            line["delays_us"], self._delays_us = self._delays_us, []
        print_json(line)


def main(
    proxy: Annotated[str, typer.Option()],
    group: Annotated[str, typer.Option()],
    concurrency: Annotated[int, typer.Option()] = 64,
    work_ms: Annotated[float, typer.Option()] = 0.0,
    exact: Annotated[bool, typer.Option("--exact")] = False,
    fail: Annotated[bool, typer.Option("--fail")] = False,
    delays: Annotated[bool, typer.Option("--delays")] = False,
    released: Annotated[bool, typer.Option("--released")] = False,
    history: Annotated[Path | None, typer.Option()] = None,
) -> None:
    """Consume until SIGTERM."""
    configure_logs(level="warning")
    name = f"worker-{os.getpid()}"
    with closing(open_history(history, "worker")) as writer:
        observer = HistoryObserver(writer, group=group, consumer=name)

        async def run() -> None:
            handler = _Handler(work_ms=work_ms, exact=exact, fail=fail, delays=delays)
            if released:
                handler.free.set()
            consumer = AsyncConsumer(
                proxy, group=group, concurrency=concurrency, client_id=name, observer=observer
            )

            def end() -> None:
                handler.ending = True
                handler.free.set()
                consumer.stop()

            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGUSR1, handler.free.set)
            loop.add_signal_handler(signal.SIGTERM, end)
            saying = spawn(handler.say(), name="say")
            try:
                await consumer.run(handler, handle_signals=False)
            finally:
                await cancel_and_wait(saying)
                handler.say_now()

        uvloop.run(run())


if __name__ == "__main__":
    typer.run(main)
