"""Single peers, one line of JSON per run: ``python -m bench.peers --peer rocketmq-orderly``."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import orjson

from bench.frame.context import RunContext
from bench.frame.peer import Work
from bench.peers.registry import PEERS


def main() -> int:
    """Run the named peers in turn."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers")
    parser.add_argument("--peer", choices=PEERS, nargs="+", required=True)
    parser.add_argument("--messages", type=int, default=4000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--queues", type=int, default=8)
    parser.add_argument("--body-bytes", type=int, default=256)
    parser.add_argument("--work-ms", type=float, default=20.0)
    parser.add_argument("--least-work-ms", type=float)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    options = vars(parser.parse_args())
    names, rounds = options.pop("peer"), options.pop("rounds")
    work = Work(**options)
    for number in range(rounds):
        for name in names:
            with tempfile.TemporaryDirectory(prefix="orderlane-bench-") as folder:
                context = RunContext(
                    folder=Path(folder),
                    seed=work.seed,
                    round=number,
                    scale="short",
                    histories=False,
                )
                figures = PEERS[name].run(context, work)
            print(orjson.dumps({"peer": name, **figures}).decode(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
