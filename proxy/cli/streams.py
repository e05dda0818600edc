"""Standard streams that are closed, as by ``<&-`` in a shell, or cannot be written."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

from proxy.errors import OrderlaneError


def hold_closed_streams() -> None:
    """Put the null device in the place of closed standard streams: the next file or socket would
    get their numbers, and with them what is written to the stream.

    Raises OrderlaneError if stdout is closed, because the output would be lost.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115  # as long as the process
    if sys.stdout is None:
        raise OrderlaneError("stdout is closed: redirect it, to /dev/null if you need no output")


def drop_output() -> None:
    """Put the null device in the place of stdout, which cannot be written: the interpreter would
    report at the exit that it could not write what is left in the buffer.
    """
    with contextlib.suppress(OSError):  # stdout is not a file
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def stdin() -> TextIO:
    """Return stdin. Raises OrderlaneError if it is closed."""
    if sys.stdin is None:
        raise OrderlaneError("stdin is closed: redirect it from a file or pipe")
    return sys.stdin
