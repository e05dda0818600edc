"""The command line in a thread next to the servers it calls: output, exit codes and errors."""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from unittest import mock

from proxy.cli import main

_call: ContextVar[object] = ContextVar("call of orderlane", default=None)


class _ByCall:
    """A stream that separates the output of concurrent calls."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.buffers: dict[object, io.StringIO] = {}

    def write(self, text: str) -> int:
        return int(self._of_call().write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of_call(), name)

    def _of_call(self) -> Any:
        return self.buffers.get(_call.get(), self._stream)


async def orderlane(*words: str) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr of ``orderlane WORDS``, run while the event loop
    continues.
    """
    return await asyncio.to_thread(_run, words)


def _run(words: tuple[str, ...]) -> tuple[int, str, str]:
    _call.set(object())
    with _captured("stdout") as out, _captured("stderr") as err:
        try:
            main.run(words)
        except SystemExit as ended:
            return int(ended.code or 0), out.getvalue(), err.getvalue()
    raise AssertionError("it did not exit")


@contextmanager
def _captured(name: str) -> Iterator[io.StringIO]:
    before = getattr(sys, name)
    streams, buffer = _ByCall(before), io.StringIO()
    streams.buffers[_call.get()] = buffer
    with mock.patch.object(sys, name, streams), mock.patch.object(main, "configure_logs"):
        yield buffer
