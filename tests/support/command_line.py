"""The command line run inside the test process: no start-up time, the same words and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import structlog

from proxy.cli import main
from testkit.processes import Ended


class CommandLine:
    """Runs a verb with its arguments. Only warnings and errors of the log appear on stderr."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: object) -> Ended:
        """Run a verb to its end."""
        self._monkeypatch.setattr(sys, "argv", ["orderlane", *map(str, arguments)])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main.run()
        captured = self._capsys.readouterr()
        return Ended(int(ended.value.code or 0), captured.out, captured.err)

    def problem(self, *arguments: object) -> str:
        """Return the only sentence on stderr; the verb must exit with code 2 and print nothing
        else.
        """
        ended = self(*arguments)
        lines = ended.err.splitlines()
        assert (ended.code, ended.out, len(lines)) == (2, "", 1), ended
        assert lines[0].startswith("orderlane: ")
        return lines[0].removeprefix("orderlane: ")


@contextmanager
def command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[CommandLine]:
    """Yield a command line whose logs go to the captured stderr."""
    monkeypatch.setattr(main, "configure_logs", lambda **_: None)
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
    yield CommandLine(monkeypatch, capsys)
