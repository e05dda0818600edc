"""``orderlane store``: check, export and import data folders of embedded servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from broker_core.broker.restoring import restored_table
from broker_core.clock import wall_ms
from broker_core.store.backup import Manifest
from broker_core.store.check import check_store
from broker_core.store.exporting import export_store
from broker_core.store.importing import import_store
from proxy.cli.output import print_json, say
from proxy.errors import OrderlaneError

app = typer.Typer(
    no_args_is_help=True,
    help="Check the data folder of an embedded broker; back it up, and restore it.",
)

FolderArgument = Annotated[Path, typer.Argument(help="data folder of the broker")]
DataOption = Annotated[Path, typer.Option("--data", help="data folder of the broker or nameserver")]
ToOption = Annotated[Path, typer.Option("--to", help="new folder for the backup")]
FromOption = Annotated[Path, typer.Option("--from", help="folder of the backup")]

_PERCENT = 5  # between two lines of progress


@app.command("check")
def check(folder: FolderArgument) -> None:
    """Verify every message, index entry, key and table of a data folder, without changing it.

    Prints a report as JSON. The broker may run: then its newest messages are left out. Exit code 1
    if something is damaged, 2 if the folder cannot be read.
    """
    with _one_sentence(folder):
        report = check_store(folder, progress=_progress("of the log"))
    print_json(report.to_json())
    if not report.is_clean:
        raise typer.Exit(1)


@app.command("export")
def export(data: DataOption, to: ToOption) -> None:
    """Copy a data folder to a new backup, also while its broker runs.

    Prints what it contains as JSON.
    """
    with _one_sentence(data):
        manifest = export_store(
            data, to, version=version("orderlane"), progress=_progress("of the log")
        )
    print_json({"backup": str(to), **_contents(manifest)})


@app.command("import")
def import_(source: FromOption, data: DataOption) -> None:
    """Make a new data folder from a backup, and verify every byte and message of it.

    Prints what it contains as JSON.
    """
    with _one_sentence(data):
        manifest = import_store(
            source,
            data,
            restored=partial(restored_table, now_ms=wall_ms()),
            progress=_progress("of the backup"),
        )
    print_json({"data": str(data), **_contents(manifest)})


def _contents(manifest: Manifest) -> dict[str, Any]:
    return {
        "kind": manifest.kind,
        "version": manifest.version,
        "made_ms": manifest.made_ms,
        "bytes": manifest.size,
        "messages": manifest.messages,
        "topics": len(manifest.queue_ends),
        "damaged": manifest.damaged,
    }


def _progress(of: str) -> Callable[[int, int], None]:
    said = -_PERCENT

    def progress(done: int, total: int) -> None:
        nonlocal said
        percent = 100 * done // max(1, total)
        if percent >= said + _PERCENT:
            said = percent
            say(f"{percent} %: {done:,} of {total:,} bytes {of}")

    return progress


@contextmanager
def _one_sentence(folder: Path) -> Iterator[None]:
    """Report an error of the disk as one sentence."""
    try:
        yield
    except OSError as error:
        where = error.filename or folder
        raise OrderlaneError(f"{where} cannot be used: {error.strerror}") from error
