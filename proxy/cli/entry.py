"""What the script ``orderlane`` calls: the base installation has the script, but not its parts."""

from __future__ import annotations

import sys


def run() -> None:
    """Run the command line, or say how to install it."""
    try:
        from proxy.cli import main  # what it imports may be missing
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in ("proxy", "broker_core"):
            raise  # not a missing extra: a bug
        sys.stderr.write(
            f"orderlane: {error.name} is not installed: the command line needs the extra 'server',"
            " as in pip install 'orderlane[server]'\n"
        )
        sys.exit(2)
    main.run()
