"""``orderlane completion``: completion scripts for shells."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer.completion import get_completion_script  # type: ignore[attr-defined]


class Shell(StrEnum):
    """Supported shells."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(help="name of the shell")],
) -> None:
    """Print a shell completion script, to be loaded when the shell starts.

    orderlane --install-completion installs it for the current shell.
    """
    typer.echo(
        get_completion_script(
            prog_name="orderlane", complete_var="_ORDERLANE_COMPLETE", shell=shell.value
        )
    )
