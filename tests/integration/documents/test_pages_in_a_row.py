"""README, Getting started and the Python client's quick start, one after the other at one gateway.

A reader follows them in this order, so the messages and groups of one page must not disturb the
next. Each program runs as printed, until it has printed what its page says, and then gets the
SIGTERM of which the page speaks. ``test_documents_run.py`` runs all commands, page by page.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from orderlane.testing import Gateway
from tests.support.doc_commands import Block, blocks_of
from tools.pins import ROOT

#: Time for a retry on the page, and here.
_PAUSE, _SHORTER = "after_s=0.5", "after_s=0.01"


def blocks(page: str, section: str, language: str) -> list[Block]:
    found = [
        block
        for block in blocks_of(page, (ROOT / page).read_text())
        if (block.section, block.language) == (section, language)
    ]
    assert found, f"{page}: {section} has no {language}"
    return found


class Row:
    """The reader: runs programs and commands of pages at one gateway."""

    def __init__(self, address: str) -> None:
        self._address = address

    def program(self, block: Block, until: Callable[[list[str]], bool] | None = None) -> list[str]:
        """Run a program, stopped by SIGTERM once *until* holds; return the lines it printed."""
        printer = _Printer(until)
        code = self._here(block.text).replace(_PAUSE, _SHORTER)
        with _no_harm():  # stdout also has the gateway's log
            exec(
                compile(code, f"{block.page}:{block.line}", "exec"),
                {"__name__": "__main__", "print": printer},
            )
        return printer.lines

    def command(self, block: Block) -> str:
        """Run a line ``echo 'TEXT' | orderlane WORDS``; return its output."""
        (line,) = block.text.splitlines()
        found = re.fullmatch(r"echo '(.*)' \| orderlane (.*)", line)
        assert found is not None, line
        words = [*shlex.split(found[2]), "--proxy", self._address]
        done = subprocess.run(
            [sys.executable, "-m", "proxy.cli", *words],
            input=found[1] + "\n",
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        output: str = done.stdout
        return output

    def _here(self, text: str) -> str:
        assert "127.0.0.1:9713" in text
        return text.replace("127.0.0.1:9713", self._address)


class _Printer:
    """A program's ``print``. Sends SIGTERM to this process once the lines are as expected."""

    def __init__(self, until: Callable[[list[str]], bool] | None) -> None:
        self.lines: list[str] = []
        self._until = until

    def __call__(self, *words: object) -> None:
        self.lines.append(" ".join(map(str, words)))
        if self._until is not None and self._until(self.lines):
            self._until = None
            os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def _no_harm() -> Iterator[None]:
    """Ignore the signal where the program does not handle it, so that its absence is a failure of
    this test alone.
    """
    assert threading.current_thread() is threading.main_thread()
    former = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def settings_of(block: Block) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(block.text)["groups"]
    return found


@pytest.mark.sockets
@pytest.mark.timeout(120)
def test_pages_work_in_sequence() -> None:
    started = "docs/getting-started.md"
    (settings,) = blocks(started, "Order by a key", "yaml")
    with Gateway(groups=settings_of(settings), settings={"auto_create_groups": True}) as gateway:
        row = Row(gateway.address)

        # README: it prints `1 attempt 1`
        assert row.command(blocks("README.md", "A client", "sh")[0]) == '{"sent":1}\n'
        (client,) = blocks("README.md", "A client", "python")
        assert row.program(client, lambda lines: len(lines) >= 1) == ["1 attempt 1"]

        # Getting started: a line for each of the 100 messages, on its second attempt, in order
        row.program(blocks(started, "Send", "python")[0])
        (consume,) = blocks(started, "Consume", "python")
        lines = row.program(consume, lambda lines: len(lines) >= 100)
        assert len(lines) == 100
        offsets = defaultdict(list)
        for line in lines:
            found = re.fullmatch(r"(customer-\d) payments/\S+ at offset (\d+) \(attempt 2\)", line)
            assert found is not None, line
            offsets[found[1]].append(int(found[2]))
        assert len(offsets) == 10
        assert all(each == sorted(each) and len(each) == 10 for each in offsets.values())

        # The Python client: ten lines; those of each customer are in the order of their numbers
        (quickstart,) = blocks("docs/python-client.md", "Quick start", "python")
        lines = row.program(quickstart)
        assert len(lines) == 10
        numbers = defaultdict(list)
        for line in lines:
            found = re.fullmatch(r"(customer-\d) \{'number': (\d)\}", line)
            assert found is not None, line
            numbers[found[1]].append(int(found[2]))
        assert numbers == {f"customer-{key}": [*range(key, 10, 3)] for key in range(3)}
