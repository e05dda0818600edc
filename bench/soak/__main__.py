"""``make soak``: 24,000,000 messages or 20 minutes, whichever comes first; is memory flat?

Nameserver, broker and proxy as processes; a sender through the proxy, a lean consumer, the Python
client whose handlers sometimes fail, and a visitor every five seconds. The sender waits while too
many messages are unhandled, so the machine determines the rate. Keys change over time, and
retention bounds the broker's log. Each consumer judges the order of its messages; in the end as
many must have arrived as were sent.

The run fails if the resident memory of a process grows by 1 MB per minute or more after the
warm-up, if it has more sockets in the last third than in the first, or two more threads, if its
descriptors of deleted files or of files that are open already grow, or if a message was lost,
arrived early, overtook a failed one, or was repeated. Everything stays in ``build/soak``.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from dataclasses import asdict
from typing import Any

from bench.report import ROOT, write_result
from bench.soak.judge import problems_of_memory, problems_of_messages, row, steady
from bench.soak.report import COLUMNS, sentence
from bench.soak.report import rows as report_rows
from bench.soak.run import Outcome, Plan, run
from bench.soak.samples import Sample
from proxy.cli.output import OutputFormat, print_rows, say
from proxy.errors import OrderlaneError

_OUT = ROOT / "build" / "soak"
_KEPT = ROOT / "bench" / "results" / "soak.json"
#: Interval of samples, in the stored copy.
_KEPT_EVERY_S = 30.0


def main() -> int:
    options = _options()
    plan = _plan(options)
    # Stop the child processes with this one.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    shutil.rmtree(_OUT, ignore_errors=True)
    try:
        outcome = run(plan, _OUT, say=lambda sentence: say(f"soak: {sentence}"))
    except (AssertionError, OrderlaneError) as error:
        say(f"soak did not finish: {error}")
        return 1
    except KeyboardInterrupt:
        say("soak interrupted; all processes were stopped")
        return 130
    finally:
        shutil.rmtree(_OUT / "data", ignore_errors=True)  # gigabytes without information
    warm_s = plan.warm_until_s(outcome.took_s)
    counted = {name: steady(each, warm_s=warm_s) for name, each in outcome.samples.items()}
    problems = problems_of_messages(outcome.seen)
    for name, samples in counted.items():
        problems += problems_of_memory(name, samples)
    rows = [row(name, samples) for name, samples in counted.items() if samples]
    summary = _summary(outcome, problems, rows)
    command = "make soak" + (f' ARGS="{" ".join(sys.argv[1:])}"' if sys.argv[1:] else "")
    for path, every_s in ((_OUT / "report.json", 0.0), (options.out, _KEPT_EVERY_S)):
        if path is not None:
            write_result(
                path,
                "soak",
                command=command,
                options={**asdict(plan), "warm_s": round(warm_s, 1)},
                summary=[summary],
                runs=_thinned(outcome.samples, every_s),
            )
    _tell(summary)
    return 1 if problems else 0


def _options() -> argparse.Namespace:
    plan = Plan()
    parser = argparse.ArgumentParser(
        prog="make soak ARGS=",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=plan.seconds / 60)
    parser.add_argument("--messages", type=int, default=plan.messages)
    parser.add_argument(
        "--warm-s",
        type=float,
        help="seconds before memory is measured; default: 180, or a quarter of the run",
    )
    parser.add_argument(
        "--every-s", type=float, default=plan.every_s, help="seconds between samples"
    )
    parser.add_argument("--keys", type=int, default=plan.keys_alive, help="number of live keys")
    parser.add_argument(
        "--backlog", type=int, default=plan.backlog, help="limit of sent and unhandled messages"
    )
    parser.add_argument("--body-bytes", type=int, default=plan.body_bytes)
    parser.add_argument("--flush", choices=("sync", "async"), default=plan.flush)
    parser.add_argument("--seed", type=int, default=plan.seed)
    parser.add_argument(
        "--keep", dest="out", action="store_const", const=_KEPT, help="as bench/results/soak.json"
    )
    return parser.parse_args()


def _plan(options: argparse.Namespace) -> Plan:
    return Plan(
        seconds=options.minutes * 60,
        messages=options.messages,
        every_s=options.every_s,
        warm_s=options.warm_s,
        keys_alive=options.keys,
        body_bytes=options.body_bytes,
        backlog=options.backlog,
        flush=options.flush,
        seed=options.seed,
    )


def _summary(outcome: Outcome, problems: list[str], rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "sent": outcome.seen.sent,
        "resent": outcome.seen.resent,
        "seconds": round(outcome.took_s, 1),
        "per_s": round(outcome.seen.sent / outcome.took_s),
        "keys": outcome.keys,
        "visits": outcome.visits,
        "consumers": outcome.seen.consumers,
        "dead_letters": outcome.seen.dead_letters,
        "lapses": outcome.seen.lapses,
        "problems": problems,
        "processes": rows,
    }


def _thinned(samples: dict[str, list[Sample]], every_s: float) -> list[dict[str, Any]]:
    """Return one sample of each process per *every_s* seconds; all of them for 0."""
    found = []
    for name, each in samples.items():
        due_s = 0.0
        for sample in each:
            if sample.at_s >= due_s:
                found.append({"process": name, **asdict(sample)})
                due_s = sample.at_s + every_s
    return found


def _tell(summary: dict[str, Any]) -> None:
    say(f"soak: {sentence(summary)}")
    print_rows(report_rows([summary]), columns=COLUMNS, output=OutputFormat.TABLE)
    for problem in summary["problems"]:
        say(f"soak: failed: {problem}")


if __name__ == "__main__":
    sys.exit(main())
