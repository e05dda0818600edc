"""Entry point of ``python -m bench``, the command ``orderlane bench`` in a source tree."""

from __future__ import annotations

import sys

from orderlane.command_line import run

if __name__ == "__main__":
    sys.argv[:] = ["orderlane", "bench", *sys.argv[1:]]
    run()
