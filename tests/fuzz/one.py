"""Fuzzes one parser in this process, for ``__main__``.

Arguments: its name, a program that starts the same again (libFuzzer does so to merge), and
libFuzzer's options.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["broker_core", "proxy"]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    """Fuzz one parser; never returns, since libFuzzer ends the process."""
    target, itself = TARGETS[sys.argv[1]], sys.argv[2]
    atheris.Setup([itself, *sys.argv[3:]], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
