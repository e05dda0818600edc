"""``make chaos``: whole processes under seeded attack; the recorded histories must be clean.

Nameserver, broker, three proxies, clients and a producer as processes; a nemesis kills, stops,
restarts them and cuts the links between them while messages of few keys flow. One group parks what
it gives up; another one, beside it, makes dead letters of it or blocks. An operator parks, redrives
and pauses keys meanwhile, skips and retries messages, gives queues to proxies by name, and changes
limits, timeouts, policies and order keys. Then all is healed and drained, what is parked is
redriven, and the history checker judges what every process wrote down. A run fails as well if it
proves little: with more than 50 keys to 10,000 messages, a kind of fault or act missing, or nothing
parked and redriven.

The same seed attacks the same targets at the same times. Everything that a run wrote stays in
``build/chaos/BROKER-SEED``: histories, logs, ``schedule.json``, ``report.json``, ``report.md``.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys

import orjson
import pytest
import structlog
import uvloop

from tests.chaos.consumer import KINDS
from tests.chaos.report import markdown
from tests.chaos.run import Result, run, say
from tests.chaos.schedule import TIMES, plan
from tests.chaos.site import Shape
from tests.chaos.workload import SECOND_GROUP
from tests.support.brokers import EMBEDDED
from tests.support.java import require_java
from tests.support.processes import ROOT
from tests.support.rocketmq import VERSIONS

_OUT = ROOT / "build/chaos"
_CLIENTS = f"runs,ddmq-java,blocking,thin,ddmq-go,runs@{SECOND_GROUP},thin@{SECOND_GROUP}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos ARGS=", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=0, help="of faults; default: one round")
    parser.add_argument(
        "--broker", action="append", help="embedded or a version of Apache RocketMQ, repeatable"
    )
    parser.add_argument(
        "--times", choices=sorted(TIMES), default="default", help="of locks and leases"
    )
    parser.add_argument("--on-exhausted", choices=("dead_letter", "park", "block"), default="park")
    parser.add_argument("--proxies", type=int, default=3)
    parser.add_argument(
        "--clients",
        default=_CLIENTS,
        help=f"kind of each, of {', '.join(KINDS)}; with @{SECOND_GROUP}: of the second group",
    )
    parser.add_argument("--keys", type=int, default=8)
    parser.add_argument("--rate", type=float, default=150, help="messages a second")
    parser.add_argument(
        "--lock-expiry-s", type=float, help="of an official broker (its own default is 60)"
    )
    return parser.parse_args()


def _shape(options: argparse.Namespace, broker: str) -> Shape:
    """What becomes of messages that fail again and again in the second group is the seed's choice,
    and another one on each kind of broker.
    """
    times = TIMES[options.times]
    odd = (options.seed + (broker != EMBEDDED)) % 2
    return Shape(
        broker=broker,
        seed=options.seed,
        times=times,
        broker_expiry_s=options.lock_expiry_s or times.expiry_s,
        on_exhausted=options.on_exhausted,
        second=("block", "dead_letter")[odd],
        proxies=options.proxies,
        clients=tuple(options.clients.split(",")),
        keys=options.keys,
        rate=options.rate,
    )


def _brokers(options: argparse.Namespace) -> list[str]:
    """Both kinds; without Java the embedded one, unless everything is required."""
    if options.broker:
        return list(options.broker)
    try:
        require_java()
    except pytest.skip.Exception as missing:
        say(f"not on Apache RocketMQ: {missing}")
        return [EMBEDDED]
    return [EMBEDDED, VERSIONS[0]]


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
    (folder / "report.json").write_bytes(orjson.dumps(result.as_dict(), option=orjson.OPT_INDENT_2))
    (folder / "report.md").write_text(markdown(result))
    return result


def main() -> int:
    options = _options()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    # As at any other end the processes that were started are ended.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        brokers = _brokers(options)
    except pytest.fail.Exception as missing:
        say(str(missing))
        return 1
    failed = False
    try:
        for broker in brokers:
            result = uvloop.run(_run(options, _shape(options, broker)))
            print(markdown(result))
            failed = failed or bool(result.problems)
    except KeyboardInterrupt:
        say("interrupted; all processes are ended")
        return 130
    if failed:
        say(f"failed; the same faults again: --seed {options.seed}; see {_OUT.relative_to(ROOT)}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
