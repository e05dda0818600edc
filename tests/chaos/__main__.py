"""``make chaos``, ``make chaos-long``: attack whole processes by seed; the recorded histories must
be clean.

Nameserver, broker, three proxies, clients and a producer run as processes. A nemesis kills, stops
and restarts them and cuts their links while messages of few keys flow. One group parks exhausted
messages; a second group dead-letters them or blocks. Meanwhile an operator parks, redrives and
pauses keys, skips and retries messages, hands queues to proxies by name, and changes limits,
timeouts, policies and order keys. Then all faults end, the queues are drained, parked messages are
redriven, and the history checker judges the records of all processes. A run also fails if it proves
little: with more than 50 keys per 10,000 messages, without some kind of fault or operation, or
without parked and redriven messages.

``--part`` is one round on the embedded broker with short times, about a minute. In a long run every
process has its own network, if the machine allows it, and Apache RocketMQ's broker has a slave. It
has additional faults, see ``schedule.LONG_KINDS``: at first one at a time, then several together.
The histories are judged while they are written; the run ends at the first violation.

A seed determines targets and times of the attacks. All output stays in ``build/chaos/BROKER-SEED``
(``build/chaos-long``): histories, logs, ``schedule.json``, ``report.json``, ``report.md``.
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

from testkit.brokers import EMBEDDED
from testkit.java import require_java
from testkit.processes import ROOT
from testkit.rocketmq import VERSIONS
from testkit.thin_clients.languages import BuildFailed
from tests.chaos import clients, namespaces
from tests.chaos.consumer import KINDS
from tests.chaos.network import Loopback, Network
from tests.chaos.report import markdown
from tests.chaos.run import Result, run, say
from tests.chaos.schedule import (
    CLOCK_KINDS,
    DISK_KINDS,
    LOAD_KINDS,
    PROXIES_KINDS,
    REPLICA_KINDS,
    TIMES,
    plan,
)
from tests.chaos.schedule import (
    KINDS as FAULTS,
)
from tests.chaos.site import Shape, kind_of
from tests.chaos.workload import SECOND_GROUP

_CLIENTS = f"runs,ddmq-java,blocking,thin,ddmq-go,runs@{SECOND_GROUP},thin@{SECOND_GROUP}"
_LONG_CLIENTS = (
    f"runs,ddmq-java,go,java,node,cpp,blocking,thin,ddmq-go,ddmq-cpp,runs@{SECOND_GROUP},"
    f"cpp@{SECOND_GROUP},go@{SECOND_GROUP}"
)
_SPARES = 2


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make chaos ARGS=", description=__doc__)
    parser.add_argument("--long", action="store_true", help="do the same as make chaos-long")
    parser.add_argument(
        "--seed", "--seeds", default="1", help="one or several, separated by commas"
    )
    parser.add_argument(
        "--minutes", type=float, help="duration of faults; default: one round, 10 minutes if long"
    )
    parser.add_argument(
        "--broker", action="append", help="embedded or a version of Apache RocketMQ, repeatable"
    )
    parser.add_argument(
        "--part", action="store_true", help="same as --broker embedded --times short, for CI"
    )
    parser.add_argument(
        "--times", choices=sorted(TIMES), help="times of locks and leases; default: default"
    )
    parser.add_argument("--on-exhausted", choices=("dead_letter", "park", "block"), default="park")
    parser.add_argument("--proxies", type=int, default=3)
    parser.add_argument(
        "--clients",
        help=f"kind of each, of {', '.join([*KINDS, *clients.OTHERS])};"
        f" with @{SECOND_GROUP}: of the second group",
    )
    parser.add_argument("--keys", type=int, help="number of keys; default: 8, 20 if long")
    parser.add_argument("--rate", type=float, help="messages a second; default: 150, 100 if long")
    parser.add_argument(
        "--no-namespaces", action="store_true", help="run everything on the loopback"
    )
    parser.add_argument(
        "--no-build", action="store_true", help="use existing builds of the clients"
    )
    parser.add_argument(namespaces.INSIDE, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument(
        "--lock-expiry-s", type=float, help="lock expiry of an official broker (its default is 60)"
    )
    given = parser.parse_args()
    long = given.long
    chosen = {
        "broker": given.broker or ([EMBEDDED] if given.part else None),
        "times": given.times or ("short" if given.part else "default"),
        "out": ROOT / ("build/chaos-long" if long else "build/chaos"),
        "minutes": given.minutes if given.minutes is not None else 10 if long else 0,
        "clients": (given.clients or (_LONG_CLIENTS if long else _CLIENTS)).split(","),
        "keys": given.keys or (20 if long else 8),
        "rate": given.rate or (100 if long else 150),
        "seeds": [int(seed) for seed in given.seed.split(",")],
    }
    return argparse.Namespace(**{**vars(given), **chosen})


def _shape(options: argparse.Namespace, broker: str, seed: int) -> Shape:
    """Return the shape of a run. The seed and the kind of broker choose how the second group treats
    exhausted messages.
    """
    times = TIMES[options.times]
    odd = (seed + (broker != EMBEDDED)) % 2
    return Shape(
        broker=broker,
        seed=seed,
        times=times,
        broker_expiry_s=options.lock_expiry_s or times.expiry_s,
        on_exhausted=options.on_exhausted,
        second=("block", "dead_letter")[odd],
        proxies=options.proxies,
        clients=tuple(options.clients),
        keys=options.keys,
        rate=options.rate,
        spares=_SPARES if options.long else 0,
        long=options.long,
    )


def _kinds(shape: Shape, network: Network) -> tuple[list[str], dict[str, str]]:
    """Return the possible kinds of faults, and why others are impossible."""
    kinds = list(FAULTS)
    missing: dict[str, str] = {}
    if not shape.long:
        return kinds, missing
    kinds += [*PROXIES_KINDS, *LOAD_KINDS]
    if shape.broker == EMBEDDED:
        kinds += DISK_KINDS
        if isinstance(network, Loopback):
            kinds.remove("broker.full")
            missing["broker.full"] = "needs a separate disk, mounted in a namespace"
    else:
        kinds += REPLICA_KINDS
        missing |= dict.fromkeys(DISK_KINDS, "a promise of the embedded broker's log only")
        if isinstance(network, Loopback):
            kinds.remove("replica.cut")
            missing["replica.cut"] = "no relay stands between master and slave"
    if shutil.which("gcc") is None:
        missing |= dict.fromkeys(CLOCK_KINDS, "moving a process's clock needs gcc")
    else:
        kinds += CLOCK_KINDS
    return kinds, missing


def _brokers(options: argparse.Namespace) -> list[str]:
    """Return both kinds; without Java only the embedded one, unless everything is required."""
    if options.broker:
        return list(options.broker)
    try:
        require_java()
    except pytest.skip.Exception as missing:
        say(f"not on Apache RocketMQ: {missing}")
        return [EMBEDDED]
    return [EMBEDDED, VERSIONS[0]]


def _network(options: argparse.Namespace, why: str) -> Network:
    """Return the network of this process: namespaces or loopback; *why* loopback."""
    return namespaces.Namespaces.build() if options.inside else Loopback(why)


async def _run(options: argparse.Namespace, shape: Shape, network: Network) -> Result:
    kinds, missing = _kinds(shape, network)
    faults = plan(
        shape.seed,
        seconds=options.minutes * 60,
        times=shape.times,
        proxies=shape.proxies,
        clients=len(shape.clients),
        kinds=kinds,
    )
    schedule = orjson.dumps([fault.as_dict() for fault in faults], option=orjson.OPT_INDENT_2)
    folder = options.out / f"{shape.broker}-{shape.seed}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "schedule.json").write_bytes(schedule)
    lasts_s = max(fault.at_s + fault.for_s for fault in faults)
    result = await run(shape, folder, faults, seconds=lasts_s, network=network)
    if missing:
        result.about["not_here"] = missing
    (folder / "report.json").write_bytes(orjson.dumps(result.as_dict(), option=orjson.OPT_INDENT_2))
    (folder / "report.md").write_text(markdown(result))
    return result


def _attack(options: argparse.Namespace, brokers: list[str], why: str) -> int:
    """Run all; return the number of failures."""
    network, failed = _network(options, why), []
    for seed in options.seeds:
        for broker in brokers:
            result = uvloop.run(_run(options, _shape(options, broker, seed), network))
            print(markdown(result), flush=True)
            if result.problems:
                failed.append(f"--broker {broker} --seed {seed}")
    out = options.out.relative_to(ROOT)
    for each in failed:
        say(f"failed; repeat the same faults with: {each}; see {out}")
    print(f"{len(options.seeds) * len(brokers) - len(failed)} passed, {len(failed)} failed")
    return len(failed)


def _prepare(options: argparse.Namespace) -> str | None:
    """Build the programs; return what is missing."""
    kinds = [kind_of(client) for client in options.clients]
    if absent := clients.missing(kinds):
        return "; ".join(absent)
    try:
        if not options.no_build:
            clients.build(kinds)
    except BuildFailed as failed:
        return str(failed)
    return None


def main() -> int:
    options = _options()
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    # A shell lets its background processes ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # End all started processes, as at any other end.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    why = "not requested"
    try:
        brokers = _brokers(options)
        if not options.inside:
            if problem := _prepare(options):
                say(problem)
                return 1
            if options.long and not options.no_namespaces:
                try:
                    namespaces.probe()
                    return namespaces.enter(["tests.chaos", *sys.argv[1:]])
                except namespaces.Refused as refused:
                    why = str(refused)
                    say(f"no separate networks: {refused}")
        return int(_attack(options, brokers, why) > 0)
    except pytest.fail.Exception as missing:
        say(str(missing))
        return 1
    except KeyboardInterrupt:
        say("interrupted; all processes were stopped")
        return 130


if __name__ == "__main__":
    sys.exit(main())
