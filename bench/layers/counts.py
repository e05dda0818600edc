"""Calls of Python functions and instructions of the interpreter that a message takes in each layer:
``python -m bench.layers.counts``.

Unlike times, counts are the same on every machine and under any load. They leave out C code: the
codec, system calls, memory. The client's are those of its own code alone, at a proxy in the same
process.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Annotated, Any

import typer

from bench.layers import costs
from bench.layers.costs import CONNECTIONS
from bench.layers.stage import Stage, backlog
from testkit.lanes import GROUP
from thin_client.aio import AsyncConsumer
from thin_client.message import Message

_ROOT = str(Path(__file__).parents[2]) + "/"
#: Layers by the beginning of a file's path; the first match counts. Other files are the
#: benchmark's own, or the event loop's.
_LAYERS = {
    "proxy/downstream/port/frames.py": "Thrift",
    "thrift_idl/": "Thrift",
    "proxy/downstream/port/connection.py": "port",
    "broker_core/time_slices.py": "port",
    "proxy/downstream/": "service",
    "proxy/lane/": "lane",
    "proxy/net/": "lane",
    "broker_core/remoting/": "reading",
    "broker_core/client/": "reading",
    "proxy/core/keys/": "reading",
    "proxy/core/pipeline/intake.py": "reading",
    "broker_core/": "lane",
    "proxy/core/": "core",
    "<string>": "constructors",  # of dataclasses and named tuples
}
#: Messages before and during a count of the client.
_WARM, _COUNTED = 50, 200


@dataclass(slots=True)
class Steps:
    """Steps of one layer, of all counted messages or of one."""

    calls: float = 0
    instructions: float = 0

    def of_each(self, messages: int) -> Steps:
        """Return the steps of one of *messages*."""
        return Steps(self.calls / messages, self.instructions / messages)


@dataclass(slots=True)
class StepCount:
    """Counts the steps of parts, as a ``Meter`` measures their time. The first part, which has no
    acks, does not count.
    """

    by_code: dict[CodeType, Steps] = field(default_factory=lambda: defaultdict(Steps))
    parts: int = 0

    def begin(self) -> None:
        """Begin a piece of the part."""
        if self.parts:
            self.start()

    def end(self) -> None:
        """End it."""
        sys.settrace(None)

    def part(self) -> None:
        """End the part."""
        self.parts += 1

    def start(self) -> None:
        """Count until ``end``."""
        sys.settrace(self._called)

    def _called(self, frame: FrameType, _event: str, _argument: object) -> Any:
        steps = self.by_code[frame.f_code]
        steps.calls += 1
        frame.f_trace_lines, frame.f_trace_opcodes = False, True

        def executed(_frame: FrameType, event: str, _argument: object) -> Any:
            steps.instructions += event == "opcode"
            return executed

        return executed


async def of_proxy(
    batch: int, *, request_ids: bool = False, waiting: bool = False, rounds: int = 5
) -> dict[str, Steps]:
    """Return the steps of a message in each layer, from the port on. *waiting*: each pull waits for
    its message, which is read then; *batch* is 1.
    """
    stage, count = Stage(turns=False), StepCount()
    records = backlog(batch * CONNECTIONS * (rounds + 1))
    if waiting:
        costs.waiting(stage, records, rounds, count, request_ids=request_ids)
    else:
        stage.read(records)
        costs.port(stage, batch, rounds, count, request_ids=request_ids)
    stage.close()
    messages = batch * CONNECTIONS * (rounds - 1)
    found: dict[str, Steps] = {layer: Steps() for layer in _LAYERS.values()}
    for code, steps in count.by_code.items():
        layer = _layer(code.co_filename)
        if layer is not None:
            found[layer].calls += steps.calls
            found[layer].instructions += steps.instructions
    return {layer: steps.of_each(messages) for layer, steps in found.items()}


async def of_client(*, concurrency: int, prefetch: int) -> Steps:
    """Return the steps of a message in the Python client on asyncio, apart from its handler."""
    stage, count, handled = Stage(turns=False), StepCount(), 0
    stage.read(backlog(4 * (_WARM + _COUNTED)))
    port = await stage.server.listen("127.0.0.1", 0)
    consumer = AsyncConsumer(
        f"127.0.0.1:{port}", group=GROUP, concurrency=concurrency, prefetch=prefetch
    )

    async def handle(_message: Message) -> None:
        nonlocal handled
        await asyncio.sleep(0)
        handled += 1
        if handled == _WARM:
            count.start()
        elif handled == _WARM + _COUNTED:
            count.end()
            consumer.stop()

    await consumer.run(handle, handle_signals=False)
    await stage.server.close()
    stage.close()
    found = Steps()
    for code, steps in count.by_code.items():
        if code.co_filename.startswith(f"{_ROOT}thin_client/"):
            found.calls += steps.calls
            found.instructions += steps.instructions
    return found.of_each(_COUNTED)


def main(
    batch: Annotated[int, typer.Option(help="Messages of a pull.")] = 1,
    request_ids: Annotated[bool, typer.Option(help="Pulls have a requestId.")] = False,
    waiting: Annotated[bool, typer.Option(help="Each pull waits for its one message.")] = False,
    client: Annotated[bool, typer.Option(help="Count the client, one message at a time.")] = False,
) -> None:
    """Print calls and instructions a message by layer."""
    if client:
        found = {"client": asyncio.run(of_client(concurrency=1, prefetch=0))}
    else:
        batch = 1 if waiting else batch
        found = asyncio.run(of_proxy(batch, request_ids=request_ids, waiting=waiting))
    for layer, steps in found.items():
        typer.echo(f"{layer:14}{steps.calls:8.1f} calls {steps.instructions:8.1f} instructions")
    calls = sum(each.calls for each in found.values())
    instructions = sum(each.instructions for each in found.values())
    typer.echo(f"{'sum':14}{calls:8.1f} calls {instructions:8.1f} instructions")


def _layer(filename: str) -> str | None:
    path = filename.removeprefix(_ROOT)
    return next((layer for start, layer in _LAYERS.items() if path.startswith(start)), None)


if __name__ == "__main__":
    typer.run(main)
