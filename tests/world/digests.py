"""Digests of the histories of some worlds: ``python -m tests.world.digests [--write]``.

A world depends only on its plan, its seed and the code, so every interpreter gets these digests.
Run with ``--write`` after a change of behavior; without it the exit code is 1 if a digest differs
from the recorded one. The plans are files, so changes of the generator do not matter here.
"""

from __future__ import annotations

import argparse
import logging
import platform
import sys
from pathlib import Path

import orjson

from testkit.explorer.plan import Plan
from testkit.explorer.player import play
from testkit.simulation.history import digest

_FOLDER = Path(__file__).parent
RECORDED = _FOLDER / "digests.json"
#: Small worlds, in which brokers and proxies are killed and lose power.
SEEDS = tuple(sorted(int(path.stem) for path in (_FOLDER / "plans").glob("*.json")))


def plan_of(seed: int) -> Plan:
    """Return the recorded plan of *seed*."""
    return Plan.from_json((_FOLDER / "plans" / f"{seed}.json").read_bytes())


def digest_of(seed: int) -> str:
    """Play the plan of *seed*; return the digest of its history."""
    return digest(play(plan_of(seed)).events)


def recorded() -> dict[str, str]:
    """Return the digests by seed."""
    digests: dict[str, str] = orjson.loads(RECORDED.read_bytes())
    return digests


def main(arguments: list[str] | None = None) -> int:
    """Compare or record; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.world.digests")
    parser.add_argument("--write", action="store_true", help="record the digests of this code")
    options = parser.parse_args(arguments)
    logging.disable()
    digests = {str(seed): digest_of(seed) for seed in SEEDS}
    if options.write:
        RECORDED.write_bytes(orjson.dumps(digests, option=orjson.OPT_INDENT_2) + b"\n")
        return 0
    expected = recorded()
    sys.stdout.write(f"Python {platform.python_version()}\n")
    for seed, found in digests.items():
        verdict = "as recorded" if found == expected.get(seed) else "differs from the recorded one"
        sys.stdout.write(f"seed {seed}: {found}, {verdict}\n")
    return int(digests != expected)


if __name__ == "__main__":
    sys.exit(main())
