"""Entry point of the script ``orderlane``, which also exists without the extra ``server``."""

from __future__ import annotations

import sys


def run() -> None:
    """Run the command line, or print how to install it."""
    try:
        from proxy.cli import main  # its dependencies may be missing
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("proxy", "broker_core"):
            raise  # not a missing extra: a bug
        sys.stderr.write(
            f"orderlane: {error.name} is not installed: the command line needs the extra 'server',"
            " as in pip install 'orderlane[server]'\n"
        )
        sys.exit(2)
    main.run()
