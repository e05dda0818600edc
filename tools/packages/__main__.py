"""``python -m tools.packages FOLDER``: write the sources of the distribution orderlane-server.

The folder is a project by itself: its packages have the names of an installation, its
``pyproject.toml`` needs setuptools alone.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tools.packages.mapping import MappingError
from tools.packages.server_sources import ROOT, write_sources


def main() -> int:
    """Write the sources; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.packages", description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder that does not exist")
    folder = parser.parse_args().folder
    try:
        write_sources(ROOT, folder)
    except (MappingError, FileExistsError) as error:
        sys.stderr.write(f"python -m tools.packages: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
