"""``orderlane bench``: the command of the package ``bench``, which only a source tree has."""

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
        """Raises OrderlaneError, except while a shell completes words."""
        if ctx.resilient_parsing:
            return None
        raise OrderlaneError(
            "orderlane bench needs the source tree, whose folder bench/ is not installed: clone"
            " the repository, run make setup there, and use its .venv/bin/orderlane"
        )


def command_of(root: Path) -> typer.Typer:
    """The benchmarks of the source tree at *root*; without one, a command that says so."""
    if not (root / "bench" / "command.py").exists():
        return typer.Typer(
            cls=_NotInstalled,
            no_args_is_help=True,
            help="Benchmarks of whole installations (source tree needed).",
            callback=_nothing,
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    # By name, so that nothing of the product imports what is not installed with it.
    app: typer.Typer = importlib.import_module("bench.command").app
    return app


def _nothing() -> None:
    """Without a callback typer takes no group that is empty."""


app = command_of(ROOT)
