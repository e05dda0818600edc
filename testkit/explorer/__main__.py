"""``make explore``: plays drawn plans until the time is over and prints broken promises.

Each failure is shrunk and printed as a test; its plan and history go to ``build/explored``. After a
failure the exit code is 1.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice

from testkit.explorer.exploring import Summary, Totals, be_quiet, explore
from testkit.explorer.generator import FEATURES

#: Worlds of one process: each leaves about 7 MB in caches of libraries.
_WORLDS_PER_PROCESS = 40


def main() -> int:
    """Parse the options and explore; return the exit code."""
    options = _options()
    # A terminated explorer lets its processes finish their worlds instead of orphaning them.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    totals = Totals()
    seeds = _seeds(options, totals)
    while _play(islice(seeds, _WORLDS_PER_PROCESS * options.jobs), options, totals):
        pass
    _print_totals(totals)
    return 1 if totals.failures else 0


def _seeds(options: argparse.Namespace, totals: Totals) -> Iterator[int]:
    """Yield seeds until one of the limits is reached."""
    until_s = time.monotonic() + options.minutes * 60
    for seed in range(options.seed, options.seed + (options.plans or 10**9)):
        enough = totals.virtual_s >= options.hours * 3600 > 0
        if enough or time.monotonic() >= until_s or (options.first and totals.failures):
            return
        yield seed


def _play(seeds: Iterator[int], options: argparse.Namespace, totals: Totals) -> int:
    """Play plans in new processes, and add their results; return their number."""
    shrink_s = 0.0 if options.no_shrink else options.shrink_s
    context = multiprocessing.get_context("spawn")
    played = 0
    with ProcessPoolExecutor(options.jobs, context, initializer=be_quiet) as pool:
        running: set[Future[Summary]] = set()
        while True:
            for seed in islice(seeds, options.jobs - len(running)):
                running.add(pool.submit(explore, seed, shrink_s, options.with_, options.without))
                played += 1
            if not running:
                return played
            ended, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                totals.add(future.result())
                _print_line(future.result())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make explore", description=__doc__)
    parser.add_argument("--seed", type=int, help="first seed; default: a random one")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default 10)")
    parser.add_argument("--hours", type=float, default=0.0, help="end after these simulated hours")
    parser.add_argument("--plans", type=int, help="maximum number of seeds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--first", action="store_true", help="end with the first failure")
    parser.add_argument("--no-shrink", action="store_true", help="report failures as drawn")
    parser.add_argument("--shrink-s", type=float, default=60.0, help="seconds to shrink each")
    for name, what in (("--with", "each world has"), ("--without", "no world has")):
        dest = "with_" if name == "--with" else "without"
        parser.add_argument(
            name,
            dest=dest,
            action="append",
            default=[],
            choices=sorted(FEATURES),
            metavar="FEATURE",
            help=f"a feature that {what}",
        )
    options = parser.parse_args()
    if options.seed is not None:
        return options
    seed = random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}")
    return argparse.Namespace(**{**vars(options), "seed": seed})


def _print_line(summary: Summary) -> None:
    topics, groups, proxies = summary.parts
    print(
        f"seed {summary.seed}: {summary.virtual_s:.0f} s simulated in {summary.cpu_s:.1f} s,"
        f" {topics} topics, {groups} groups, {proxies} proxies, {summary.messages} messages,"
        f" {sum(summary.done.values())} actions: {'BROKEN' if summary.failure else 'kept'}",
        flush=True,
    )


def _print_totals(totals: Totals) -> None:
    print(
        f"\n{totals.plans} plans, {totals.virtual_s / 3600:.2f} simulated hours"
        f" ({totals.combined_s / 3600:.2f} with several topics, groups and proxies) in"
        f" {totals.cpu_s:.0f} s of a processor, {totals.messages} messages,"
        f" {sum(totals.done.values())} actions, {len(totals.failures)} broken"
    )
    for kind, count in sorted(totals.done.items()):
        print(f"  {kind:12} {count}")
    for summary in totals.failures:
        print(f"\nseed {summary.seed}:\n{summary.failure}")


if __name__ == "__main__":
    sys.exit(main())
