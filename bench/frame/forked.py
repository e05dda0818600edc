"""Warm processes, forked from this one with their modules already loaded.

Loading takes most of a short run and is never part of a figure. Modules and code are the same; full
shapes start processes as users do.
"""

from __future__ import annotations

import gc
import os
import runpy
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import IO, NoReturn

_LOOK_S = 0.005
_PYTHON_M = (sys.executable, "-m")
#: Modules of the processes, beyond those that this one loads itself.
_MODULES = (
    *("proxy.app", "proxy.cli.main", "proxy.cli.serving"),
    *("broker_core.broker.server", "broker_core.nameserver.server", "broker_core.client"),
    *("bench.load.sender", "bench.load.puller", "bench.load.client"),
    *("bench.lean_puller", "bench.plain_consumer"),
)


class Forked:
    """A child process that runs ``python -m MODULE …`` without a new interpreter; a subset of
    ``subprocess.Popen``.
    """

    def __init__(
        self,
        args: Sequence[str],
        *,
        stdin: int,
        stdout: IO[bytes],
        stderr: IO[bytes],
        cwd: Path,
        env: Mapping[str, str],
    ) -> None:
        """Fork the process.

        *args* begin with this interpreter and ``-m``; *stdin* is ``subprocess.DEVNULL``.
        """
        assert tuple(args[:2]) == _PYTHON_M, args
        assert stdin == subprocess.DEVNULL
        self.args = list(args)
        self._code: int | None = None
        _load()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become(self.args[2:], stdout, stderr, cwd, env)

    def poll(self) -> int | None:
        """Return its exit code, negative after a signal; None while it runs."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end and return its exit code. Raises subprocess.TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if timeout is not None and deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(_LOOK_S)
        assert self._code is not None
        return self._code

    @property
    def returncode(self) -> int | None:
        """The exit code that ``poll`` saw last."""
        return self._code

    def send_signal(self, number: int) -> None:
        """Send a signal if the process runs."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


@cache
def _load() -> None:
    for name in _MODULES:
        import_module(name)
    gc.freeze()  # so that children's collections leave these pages shared


def _become(
    words: list[str], stdout: IO[bytes], stderr: IO[bytes], cwd: Path, env: Mapping[str, str]
) -> NoReturn:
    """Become like a new interpreter; runs in the child and never returns."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGALRM, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(stdout.fileno(), 1)
        os.dup2(stderr.fileno(), 2)
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        sys.argv = [words[0], *words[1:]]
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
