"""Fuzzes one parser in this process, as ``__main__`` asks: its name, a program that starts the same
again, which libFuzzer does to merge, and libFuzzer's options.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["broker_core", "proxy"]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Never returns: libFuzzer ends the process."""
    target, itself = TARGETS[sys.argv[1]], sys.argv[2]
    atheris.Setup([itself, *sys.argv[3:]], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
