"""A time limit for each test that leaves the process usable.

At the limit SIGALRM raises an exception in the main thread, at the test's current line. It is
postponed while the interrupted code belongs to a library that may hold a lock without a
``finally``: tracing by coverage, an import, a log record, hypothesis between two examples, pytest
itself. If the test continues nevertheless, the exception is raised again; a grace period later the
stacks of all threads are printed and the process ends, so that pytest-xdist reports the test and
starts another worker.

``time_limit`` in pytest's configuration and ``--time-limit`` are the seconds for setup, call and
teardown together, 0 for none; ``@pytest.mark.timeout(seconds)`` is the limit of one test.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import sysconfig
import threading
from collections.abc import Iterator
from types import FrameType

import pytest

#: Folders of code that is neither the project's nor a test.
_LIBRARIES = (
    *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib")),
    *(sys.prefix + os.sep, "<"),
)
_AGAIN_S = 0.05
#: Top-level packages that must not be interrupted.
_DELICATE = frozenset(
    (
        *("coverage", "pytest_cov", "hypothesis", "_pytest", "pluggy", "xdist", "execnet"),
        *("importlib", "_frozen_importlib", "_frozen_importlib_external", "logging", "threading"),
        *(
            "queue",
            "concurrent",
            "weakref",
            "functools",
            "tempfile",
            "subprocess",
            "multiprocessing",
        ),
    )
)
#: Functions of these packages that only wait, and clean up when interrupted.
_WAITS = frozenset(
    (
        *(("threading", name) for name in ("acquire", "wait", "wait_for", "join")),
        ("threading", "_wait_for_tstate_lock"),
        *(("queue", name) for name in ("get", "put", "join")),
        *(("concurrent", name) for name in ("result", "exception", "wait", "shutdown", "__exit__")),
        *(("subprocess", name) for name in ("wait", "_wait", "_try_wait", "communicate")),
        *(("subprocess", name) for name in ("_communicate", "run", "call", "check_output")),
    )
)


class TimeLimitExceeded(BaseException):
    """The test exceeded its time limit. Not an Exception: hypothesis would try to shrink it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options to pytest."""
    text = "seconds for one test; 0: no limit"
    parser.addini("time_limit", text, default="0")
    parser.addini("time_limit_grace", "seconds until a test that goes on is killed", default="60")
    parser.getgroup("time limit").addoption("--time-limit", type=float, help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Install the limit."""
    config.addinivalue_line("markers", "timeout(seconds): time limit of this test")
    config.pluginmanager.register(_Limits(config), "time limits of tests")


class _Limits:
    def __init__(self, config: pytest.Config) -> None:
        given = config.getoption("--time-limit")
        self._limit_s = float(config.getini("time_limit")) if given is None else float(given)
        self._grace_s = float(config.getini("time_limit_grace"))
        # Output captured by pytest is lost when the process ends.
        self._stderr = os.dup(2)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[object]:
        marker = item.get_closest_marker("timeout")
        limit_s = self._limit_s if marker is None else float(marker.args[0])
        if not limit_s or threading.current_thread() is not threading.main_thread():
            return (yield)

        def ring(_number: int, frame: FrameType | None) -> None:
            interruptible = may_interrupt(frame)
            signal.setitimer(signal.ITIMER_REAL, self._grace_s / 10 if interruptible else _AGAIN_S)
            if interruptible:
                raise TimeLimitExceeded(f"the test has exceeded its {limit_s:g} s")

        before = signal.signal(signal.SIGALRM, ring)
        faulthandler.dump_traceback_later(limit_s + self._grace_s, exit=True, file=self._stderr)
        signal.setitimer(signal.ITIMER_REAL, limit_s)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            faulthandler.cancel_dump_traceback_later()
            signal.signal(signal.SIGALRM, before)

    def pytest_unconfigure(self) -> None:
        os.close(self._stderr)


def may_interrupt(frame: FrameType | None) -> bool:
    """Return whether an exception in *frame* leaves no lock behind, as far as known."""
    while frame is not None:
        name = frame.f_globals.get("__name__") or ""
        package = name.partition(".")[0]
        if package == "pytest_asyncio":
            return True
        if package in _DELICATE and (package, frame.f_code.co_name) not in _WAITS:
            return False
        if not frame.f_code.co_filename.startswith(_LIBRARIES):
            return True
        frame = frame.f_back
    return False
