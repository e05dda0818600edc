"""A command for each message: its body on stdin, its fields in the environment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import orjson

from broker_core.tasks import cancel_and_wait, spawn
from proxy.core.keys.order_key import key_text
from thin_client import Defer, Message, Reject

#: Exit codes beside 0, as ``sysexits.h`` has them: bad input; a service that is not there.
REJECTED, UNAVAILABLE = 65, 69
#: Of a command's stderr so much is kept for the reason.
_TAIL_BYTES, _CHUNK_BYTES = 4_096, 512
LAST_WORDS_S = 0.2
#: A command that was told to end has so long for it.
_GRACE_S = 2.0


class CommandFailed(Exception):
    """The command ended with another code, or could not be run."""


class Executor:
    """A handler that runs *command* in a shell: exit code 0 acks, 65 rejects, 69 gives back, others
    mean retry; the reason is the last line of its stderr.

    Its process group is ended when the message's lease is lost, or the drain's time is up.
    """

    def __init__(self, command: str) -> None:
        self._command = command
        self._running: dict[Message, asyncio.subprocess.Process] = {}

    async def __call__(self, message: Message) -> None:
        """Run it over *message*. Raises Reject, Defer or CommandFailed."""
        async with _stderr() as stderr, _stdin(message.body) as stdin:
            try:
                process = await asyncio.create_subprocess_shell(
                    self._command,
                    stdin=stdin,
                    stderr=stderr.command_end,
                    env=os.environ | environment_of(message),
                    start_new_session=True,  # an interrupt at the terminal drains; it kills nothing
                )
            except OSError as error:
                why = error.strerror or str(error)
                raise CommandFailed(f"the command cannot be run: {why}") from None
            self._running[message] = process
            try:
                await process.wait()
            finally:
                await _end(process)
                del self._running[message]
            last_line = await stderr.last_line()
        if message.lease_lost:
            raise CommandFailed("its lease was lost")
        code = process.returncode
        reason = last_line or f"exit code {code}"
        if code == REJECTED:
            raise Reject(reason)
        if code == UNAVAILABLE:
            raise Defer
        if code != 0:
            raise CommandFailed(reason)

    def lose(self, message: Message) -> None:
        """Someone else may get *message*: its command shall end."""
        process = self._running.get(message)
        if process is not None:
            _signal(process, signal.SIGTERM)


def environment_of(message: Message) -> dict[str, str]:
    """The variables that a command gets; what *message* lacks is absent."""
    fields = {
        "TOPIC": message.topic,
        "QUEUE": message.queue.partition("#")[0],
        "OFFSET": str(message.offset),
        "KEY": message.key,
        "ORDER_KEY": key_text(message.order_key),
        "TAG": message.tag,
        "ATTEMPT": str(message.attempt),
        "BORN_AT_MS": None if message.born_at_ms is None else str(message.born_at_ms),
        "MESSAGE_ID": message.message_id,
        "PROPERTIES": orjson.dumps(message.properties).decode(),
    }
    found = {f"ORDERLANE_{name}": text for name, text in fields.items() if text is not None}
    for name in ("traceparent", "tracestate"):  # as tools expect them
        if name in message.properties:
            found[name.upper()] = message.properties[name]
    # An environment can hold no NUL.
    return {name: text.replace("\0", "\ufffd") for name, text in found.items()}


@asynccontextmanager
async def _stdin(body: bytes) -> AsyncIterator[int]:
    """A file with *body*: unlike a pipe it needs nobody who goes on writing."""
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(body)
        file.seek(0)
        yield file.fileno()


class _Stderr:
    """Passes a command's stderr on to ours, and keeps the end of it.

    A pipe of our own: one of the process object's would make the wait for its end last as long as
    anything that it left in the background.
    """

    def __init__(self, command_end: int, reader: asyncio.StreamReader) -> None:
        self.command_end = command_end
        self._tail: deque[bytes] = deque(maxlen=_TAIL_BYTES // _CHUNK_BYTES)
        self._reading = spawn(self._pass_on(reader), name="stderr of a command")

    async def last_line(self) -> str:
        """What the command said last; empty if it said nothing."""
        self.close()
        await asyncio.wait([self._reading], timeout=LAST_WORDS_S)
        lines = b"".join(self._tail).decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def close(self) -> None:
        """Give up the command's end of the pipe; it has its own copy."""
        if self.command_end >= 0:
            os.close(self.command_end)
            self.command_end = -1

    async def end(self) -> None:
        """Read no more."""
        self.close()
        await cancel_and_wait(self._reading)

    async def _pass_on(self, reader: asyncio.StreamReader) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            self._tail.append(chunk)
            sys.stderr.buffer.write(chunk)
            sys.stderr.flush()


@asynccontextmanager
async def _stderr() -> AsyncIterator[_Stderr]:
    ours, command_end = os.pipe()
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb", buffering=0)
    )
    stderr = _Stderr(command_end, reader)
    try:
        yield stderr
    finally:
        await stderr.end()
        transport.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Make sure that nothing of it goes on: the message may be given to someone else next."""
    if process.returncode is not None:
        return
    _signal(process, signal.SIGTERM)
    try:
        async with asyncio.timeout(_GRACE_S):
            await process.wait()
    except TimeoutError:
        _signal(process, signal.SIGKILL)
        await process.wait()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
