"""``orderlane store``: check the data folder of an embedded broker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from broker_core.store.check import check_store
from proxy.cli.output import print_json, say
from proxy.errors import OrderlaneError

app = typer.Typer(no_args_is_help=True, help="Check the data folder of an embedded broker.")

FolderArgument = Annotated[Path, typer.Argument(help="data folder of the broker")]

_PERCENT = 5  # between two lines of progress


@app.callback()
def _store() -> None:
    """Keep ``check`` a verb of its own, beside later ones."""


@app.command("check")
def check(folder: FolderArgument) -> None:
    """Verify every message, index entry, key and table of a data folder, without changing it.

    Prints a report as JSON. The broker may run: then its newest messages are left out. Exit code 1
    if something is damaged, 2 if the folder cannot be read.
    """
    said = -_PERCENT

    def progress(done: int, total: int) -> None:
        nonlocal said
        percent = 100 * done // max(1, total)
        if percent >= said + _PERCENT:
            said = percent
            say(f"{percent} %: {done:,} of {total:,} bytes of the log")

    try:
        report = check_store(folder, progress=progress)
    except OSError as error:
        where = error.filename or folder
        raise OrderlaneError(f"{where} cannot be read: {error.strerror}") from error
    print_json(report.to_json())
    if not report.is_clean:
        raise typer.Exit(1)
