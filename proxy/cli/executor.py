"""Runs a command per message: the body on stdin, the fields in the environment."""

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
from proxy.core.keys.order_key import key_at_proxy, key_text
from thin_client import Defer, Message, Reject

#: Exit codes besides 0, from ``sysexits.h``: EX_DATAERR and EX_UNAVAILABLE.
REJECTED, UNAVAILABLE = 65, 69
#: Size of the tail of stderr that is kept for the reason.
_TAIL_BYTES, _CHUNK_BYTES = 4_096, 512
LAST_WORDS_S = 0.2
#: Properties of a trace.
_TRACE = ("traceparent", "tracestate")
#: Seconds between SIGTERM and SIGKILL.
_GRACE_S = 2.0


class CommandFailed(Exception):
    """The command ended with another exit code, or could not be run."""


class Executor:
    """A handler that runs *command* in a shell.

    Exit code 0 acks, 65 rejects, 69 gives back, any other retries; the reason is the last line of
    stderr. Its process group is terminated when the lease is lost or the drain times out.
    """

    def __init__(self, command: str) -> None:
        self._command = command
        self._running: dict[Message, asyncio.subprocess.Process] = {}

    async def __call__(self, message: Message) -> None:
        """Run the command for *message*. Raises Reject, Defer or CommandFailed."""
        async with _stderr() as stderr, _stdin(message.body) as stdin:
            try:
                process = await asyncio.create_subprocess_shell(
                    self._command,
                    stdin=stdin,
                    stderr=stderr.command_end,
                    env=environment_of(message),
                    start_new_session=True,  # Ctrl-C drains and must not reach the command
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
        """Terminate the command of *message*, since another client may receive it."""
        process = self._running.get(message)
        if process is not None:
            _signal(process, signal.SIGTERM)


def environment_of(message: Message) -> dict[str, str]:
    """Return the environment of the command for *message*: that of this process, in which the
    fields of the message replace those of any other one. Missing fields are omitted.
    """
    fields = {
        "TOPIC": message.topic,
        "QUEUE": message.queue.partition("#")[0],
        "OFFSET": str(message.offset),
        "KEY": message.key,
        "ORDER_KEY": key_text(key_at_proxy(message.order_key_bytes)),
        "TAG": message.tag,
        "ATTEMPT": str(message.attempt),
        "BORN_AT_MS": None if message.born_at_ms is None else str(message.born_at_ms),
        "MESSAGE_ID": message.message_id,
        "PROPERTIES": orjson.dumps(message.properties).decode(),
    }
    found = {f"ORDERLANE_{name}": text for name, text in fields.items() if text is not None}
    for name in _TRACE:  # as tools expect them
        if name in message.properties:
            found[name.upper()] = message.properties[name]
    # A command of another consumer may have started this process.
    others = {*(f"ORDERLANE_{name}" for name in fields), *map(str.upper, _TRACE)}
    ours = {name: text for name, text in os.environ.items() if name not in others}
    # Environment variables cannot contain NUL.
    return ours | {name: text.replace("\0", "\ufffd") for name, text in found.items()}


@asynccontextmanager
async def _stdin(body: bytes) -> AsyncIterator[int]:
    """Yield a file with *body*; unlike a pipe, it needs no writer. Raises CommandFailed."""
    with contextlib.ExitStack() as opened:
        try:
            file = opened.enter_context(tempfile.TemporaryFile(buffering=0))
            left = memoryview(body)
            while left:  # a disk that becomes full takes only a part
                left = left[file.write(left) :]
            file.seek(0)
        except OSError as error:
            why = error.strerror or str(error)
            raise CommandFailed(f"the body cannot be stored for the command: {why}") from None
        yield file.fileno()


class _Stderr:
    """Forwards a command's stderr to this process's, and keeps its tail.

    Uses a pipe of its own: with the process object's pipe, waiting for the command would also wait
    for its background processes.
    """

    def __init__(self, command_end: int, reader: asyncio.StreamReader) -> None:
        self.command_end = command_end
        self._tail: deque[bytes] = deque(maxlen=_TAIL_BYTES // _CHUNK_BYTES)
        self._reading = spawn(self._pass_on(reader), name="stderr of a command")

    async def last_line(self) -> str:
        """Return the last line written by the command; empty if there is none."""
        self.close()
        await asyncio.wait([self._reading], timeout=LAST_WORDS_S)
        lines = b"".join(self._tail).decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def close(self) -> None:
        """Close this process's copy of the command's end of the pipe."""
        if self.command_end >= 0:
            os.close(self.command_end)
            self.command_end = -1

    async def end(self) -> None:
        """Stop reading."""
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
    """Terminate the command, since the message may be delivered to another client."""
    if process.returncode is not None:
        return
    _signal(process, signal.SIGTERM)
    ended = spawn(process.wait(), name="end of a command")
    # asyncio.timeout raises no TimeoutError in a cancelled task of Python 3.11.2, as this may be.
    await asyncio.wait([ended], timeout=_GRACE_S)
    if not ended.done():
        _signal(process, signal.SIGKILL)
    await ended


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
