"""``orderlane bench``: the command of the package ``bench``, which exists in source trees only."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from proxy.errors import OrderlaneError

ROOT = Path(__file__).parents[2]


class _NotInstalled(TyperGroup):
    """Refuses every benchmark by name."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Raise OrderlaneError, except during shell completion."""
        if ctx.resilient_parsing:
            return None
        raise OrderlaneError(
            "orderlane bench needs a source tree, since its folder bench/ is not installed: clone"
            " the repository, run make setup, and use its .venv/bin/orderlane"
        )


def command_of(root: Path) -> typer.Typer:
    """Return the benchmarks of the source tree at *root*; without one, a command that fails."""
    if not (root / "bench" / "command.py").exists():
        return typer.Typer(
            cls=_NotInstalled,
            no_args_is_help=True,
            help="Run benchmarks of whole installations (needs a source tree).",
            callback=_nothing,
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    # Imported by name: installed packages must not import bench, which is not installed.
    app: typer.Typer = importlib.import_module("bench.command").app
    return app


def _nothing() -> None:
    """Do nothing; typer refuses an empty group without a callback."""


app = command_of(ROOT)
