"""Confirmation of actions on many messages, after their effect is shown."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from broker_core.printable import printable
from proxy.errors import OrderlaneError

Yes = Annotated[bool, typer.Option("--yes", "-y", help="do it without asking")]


def may_ask(yes: bool) -> None:
    """Raise OrderlaneError if the action needs a confirmation and there is no terminal to ask at.

    Call it before any work: a script should fail at once.
    """
    if not yes and not (sys.stdin is not None and sys.stdin.isatty()):
        raise OrderlaneError(
            "this needs a confirmation, and there is no terminal to ask at: look at it with"
            " --dry-run, then add --yes"
        )


def confirm(question: str, *, yes: bool) -> None:
    """Ask *question* on stderr unless *yes*. Raises OrderlaneError if the answer is not y."""
    may_ask(yes)
    if yes:
        return
    sys.stderr.write(f"{printable(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise OrderlaneError("nothing was changed: the answer was not y")
