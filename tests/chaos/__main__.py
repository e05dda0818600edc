"""``make chaos``: whole processes under seeded attack; the recorded histories must be clean.

Nameserver, broker, three proxies, clients and a producer as processes; a nemesis kills, stops,
restarts them and cuts the links between them while messages of few keys flow. Then all is healed
and drained, and the history checker judges what every process wrote down.

The same seed attacks the same targets at the same times. Everything that a run wrote stays in
``build/chaos/BROKER-SEED``: histories, logs, ``schedule.json``, ``report.json``, ``report.md``.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys

import orjson
import structlog
import uvloop

from tests.chaos.report import markdown
from tests.chaos.run import Result, run, say
from tests.chaos.schedule import TIMES, plan
from tests.chaos.site import Shape
from tests.support.brokers import EMBEDDED
from tests.support.processes import ROOT

_OUT = ROOT / "build/chaos"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos ARGS=", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=0, help="of faults; default: one round")
    parser.add_argument(
        "--broker", action="append", help="embedded or a version of Apache RocketMQ, repeatable"
    )
    parser.add_argument("--times", choices=sorted(TIMES), help="of locks and leases")
    parser.add_argument("--on-exhausted", choices=("dead_letter", "block"))
    parser.add_argument("--proxies", type=int, default=3)
    parser.add_argument("--clients", default="thin,thin,thin,thin", help="kind of each")
    parser.add_argument("--keys", type=int, default=16)
    parser.add_argument("--rate", type=float, default=120, help="messages a second")
    parser.add_argument(
        "--lock-expiry-s", type=float, help="of an official broker (its own default is 60)"
    )
    parser.add_argument("--plan", action="store_true", help="print the schedule and do nothing")
    return parser.parse_args()


def _shape(options: argparse.Namespace, broker: str) -> Shape:
    """Where the options say nothing, the seed chooses."""
    times = TIMES[options.times or ("default", "short")[options.seed % 2]]
    policy = options.on_exhausted or ("dead_letter", "block")[options.seed // 2 % 2]
    return Shape(
        broker=broker,
        seed=options.seed,
        times=times,
        broker_expiry_s=options.lock_expiry_s or times.expiry_s,
        on_exhausted=policy,
        proxies=options.proxies,
        clients=tuple(options.clients.split(",")),
        keys=options.keys,
        rate=options.rate,
    )


async def _run(options: argparse.Namespace, shape: Shape) -> Result:
    seconds = options.minutes * 60
    faults = plan(
        shape.seed,
        seconds=seconds,
        times=shape.times,
        proxies=shape.proxies,
        clients=len(shape.clients),
    )
    schedule = orjson.dumps([fault.as_dict() for fault in faults], option=orjson.OPT_INDENT_2)
    folder = _OUT / f"{shape.broker}-{shape.seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "schedule.json").write_bytes(schedule)
    lasts_s = max(fault.at_s + fault.for_s for fault in faults)
    result = await run(shape, folder, faults, seconds=lasts_s)
    (folder / "report.md").write_text(markdown(result))
    return result


def main() -> int:
    options = _options()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    # As at any other end the processes that were started are ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    failed = False
    for broker in options.broker or [EMBEDDED, "5.3.3"]:
        result = uvloop.run(_run(options, _shape(options, broker)))
        print(markdown(result))
        failed = failed or bool(result.problems)
    if failed:
        say(f"failed; the same faults again: --seed {options.seed}; see {_OUT.relative_to(ROOT)}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
