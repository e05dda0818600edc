"""Processes of the command line as children of a test, to be killed, stopped and restarted.

Their output goes to files, so that they never block on a test that does not read.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

import orjson

ROOT = Path(__file__).parents[1]
_LOOK_S = 0.01


def wait_until(holds: Callable[[], object], *, within_s: float, what: str) -> None:
    """Return once ``holds()``; raise AssertionError with *what* after the limit."""
    deadline = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {what}"
        time.sleep(_LOOK_S)


@dataclass(frozen=True, slots=True)
class Ended:
    """The result of a verb that ended by itself."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Return its stdout as JSON."""
        return orjson.loads(self.out)


class Process(Protocol):
    """The part of ``subprocess.Popen`` that is used."""

    @property
    def pid(self) -> int: ...

    @property
    def args(self) -> Any: ...

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def send_signal(self, sig: int, /) -> None: ...

    def terminate(self) -> None: ...

    def kill(self) -> None: ...


class Starter(Protocol):
    """Starts a process."""

    def __call__(
        self,
        args: list[str],
        /,
        *,
        stdin: int,
        stdout: IO[bytes],
        stderr: IO[bytes],
        cwd: Path,
        env: Mapping[str, str],
    ) -> Process: ...


class Child:
    """``python -m proxy.cli VERB …``. Everything that waits has a limit."""

    def __init__(
        self,
        command: list[str],
        output: Path,
        environment: Mapping[str, str],
        start: Starter = subprocess.Popen,
    ) -> None:
        self._out, self._err = output.with_suffix(".out"), output.with_suffix(".err")
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = start(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=output.parent,
                env=environment,
            )

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def out(self) -> list[str]:
        """Return the complete lines of stdout so far."""
        return self._out.read_text().split("\n")[:-1]

    @property
    def output(self) -> str:
        """Return stdout so far, including an incomplete line."""
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def ready(self, *, within_s: float = 90) -> dict[str, Any]:
        """Wait for the ready line and return it."""
        self.wait_for(1, within_s=within_s)
        line: dict[str, Any] = orjson.loads(self.out[0])
        assert line.pop("ready") is True
        return line

    @property
    def ended_with(self) -> dict[str, Any]:
        """Return the last line of stdout, as JSON."""
        return dict(orjson.loads(self.out[-1]))

    def wait_for(self, lines: int, *, within_s: float = 90) -> None:
        """Wait until stdout has *lines* lines."""
        wait_until(
            lambda: len(self.out) >= lines or not self.running,
            within_s=within_s,
            what=f"{lines} lines from {self.process.args!r}; it wrote {self.err[-2000:]}",
        )
        assert len(self.out) >= lines, f"ended with {self.process.returncode}: {self.err}"

    def kill(self) -> None:
        """Kill the process with ``kill -9``."""
        self.process.kill()
        self.process.wait()

    def terminate(self, *, within_s: float = 60) -> int:
        """Send SIGTERM and return the exit code."""
        self.process.terminate()
        return self.wait(within_s=within_s)

    def hang_up(self) -> None:
        """Send SIGHUP: the process reads its settings file again."""
        self.process.send_signal(signal.SIGHUP)

    def pause(self) -> None:
        """Send SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def wait(self, *, within_s: float = 60) -> int:
        """Wait for its own end and return the exit code."""
        return self.process.wait(timeout=within_s)


@dataclass(slots=True)
class Children:
    """All children of a test; leaving the context kills those still running."""

    folder: Path
    starter: Starter = subprocess.Popen
    under: Sequence[str] = ()
    """Prefix of every command, such as ``ip netns exec NAME``."""
    environment: Mapping[str, str] = field(default_factory=dict)
    _started: list[Child] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)  # threads may start children

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        for child in self._started:
            child.kill()

    def start(self, *arguments: object, **environment: str) -> Child:
        """Start a verb; its working directory is ``folder``."""
        return self.start_command(str(arguments[0]), _command(arguments), **environment)

    def at(self, under: Sequence[str], environment: Mapping[str, str]) -> Children:
        """Return a starter for children of the same test in another folder."""
        return replace(self, under=under, environment=environment)

    @property
    def cold(self) -> Children:
        """Return a starter for children of the same test with an interpreter of their own, as for
        users.
        """
        return replace(self, starter=subprocess.Popen)

    def start_module(self, module: str, *arguments: object) -> Child:
        """Start ``python -m MODULE …``, a program of the tests."""
        command = [sys.executable, "-m", module, *map(str, arguments)]
        return self.start_command(module.rpartition(".")[2], command)

    def start_command(self, name: str, command: Sequence[str], **environment: str) -> Child:
        """Start any command; *name* is that of its output."""
        output = self.folder / f"{next(self._numbers)}-{name}"
        settings = _environment({**self.environment, **environment})
        child = Child([*self.under, *command], output, settings, self.starter)
        self._started.append(child)
        return child

    def run(
        self, *arguments: object, stdin: bytes = b"", within_s: float = 60, **environment: str
    ) -> Ended:
        """Run a verb to its end."""
        done = subprocess.run(
            _command(arguments),
            input=stdin,
            capture_output=True,
            timeout=within_s,
            cwd=self.folder,
            env=_environment(environment),
            check=False,
        )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    def run_into_head(self, *arguments: object, within_s: float = 60) -> Ended:
        """Run a verb whose reader closes after one line, as in ``orderlane … | head -1``."""
        with subprocess.Popen(
            _command(arguments),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=_environment({}),
        ) as process:
            try:
                assert process.stdout is not None
                assert process.stderr is not None
                line = process.stdout.readline()
                process.stdout.close()
                code = process.wait(timeout=within_s)
                return Ended(code, line.decode(), process.stderr.read().decode())
            finally:
                process.kill()


def _command(arguments: tuple[object, ...]) -> list[str]:
    return [sys.executable, "-m", "proxy.cli", *map(str, arguments)]


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return the test's environment without orderlane's own settings, which would change the
    result.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("ORDERLANE_")}
    return {**own, "PYTHONPATH": str(ROOT), "COLUMNS": "200", **more}
