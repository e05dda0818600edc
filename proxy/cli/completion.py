"""``orderlane completion``: what a shell needs to complete verbs and options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]


class Shell(StrEnum):
    """Shells that can complete."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(help="the shell that is to complete")],
) -> None:
    """Print a script that has a shell complete verbs and options; load it at the shell's start.

    orderlane --install-completion writes it to where the shell that runs it looks.
    """
    typer.echo(
        get_completion_script(
            prog_name="orderlane", complete_var="_ORDERLANE_COMPLETE", shell=shell.value
        )
    )
