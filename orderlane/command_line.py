"""The command ``orderlane``. The client alone knows ``--version``; all else needs the server."""

from __future__ import annotations

import sys

from orderlane import __version__

#: Import names of the server's own packages, in a checkout and in an installation.
_SERVER = ("proxy", "broker_core", "orderlane_server")


def run() -> None:
    """Run the command line, or print how to install it."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"orderlane {__version__}\n")
        return
    try:
        from proxy.cli import main  # it or its dependencies may be missing
    except ModuleNotFoundError as error:
        if error.name not in _SERVER and (error.name or "").partition(".")[0] in _SERVER:
            raise  # not a missing installation: a bug
        sys.stderr.write(
            f"orderlane: {error.name} is not installed: the command line needs the extra 'server',"
            " as in pip install 'orderlane[server]'\n"
        )
        sys.exit(2)
    main.run()
