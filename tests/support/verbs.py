"""The command line in a thread beside what it asks: its words, exit codes and sentences."""

from __future__ import annotations

import asyncio
import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from proxy.cli import main


class _ByThread:
    """A stream: what some threads write goes to buffers of their own."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.buffers: dict[int, io.StringIO] = {}

    def write(self, text: str) -> int:
        return int(self._of_thread().write(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of_thread(), name)

    def _of_thread(self) -> Any:
        return self.buffers.get(threading.get_ident(), self._stream)


async def orderlane(*words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of ``orderlane WORDS``, while the event loop goes on."""
    return await asyncio.to_thread(_run, words)


def _run(words: tuple[str, ...]) -> tuple[int, str, str]:
    with _captured("stdout") as out, _captured("stderr") as err:
        try:
            main.run(words)
        except SystemExit as ended:
            return int(ended.code or 0), out.getvalue(), err.getvalue()
    raise AssertionError("it did not exit")


@contextmanager
def _captured(name: str) -> Iterator[io.StringIO]:
    before = getattr(sys, name)
    streams, buffer = _ByThread(before), io.StringIO()
    streams.buffers[threading.get_ident()] = buffer
    with mock.patch.object(sys, name, streams), mock.patch.object(main, "configure_logs"):
        yield buffer
