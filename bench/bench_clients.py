"""Throughput of the thin clients of all languages at the same proxy, with handlers that do nothing.

Nameserver, broker, proxy and each client are separate processes. In each round every client reads
the same backlog in a group of its own; the order of the clients rotates. Pulls ask for 256
messages. The figure counts the proxy's acks from the first third of the messages, after which
clients are warm, to the last tenth. ``make conformance`` builds the clients; those not built are
left out.

``python -m bench.bench_clients [--messages N] [--rounds N]``
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cpu import cpu_s
from bench.preload import Backlog, Place
from bench.report import ROOT, shown, spread, write_result
from bench.site import EMBEDDED, ProxyProcess, running_brokers
from testkit.processes import Children
from testkit.thin_clients.languages import LANGUAGES, Language, client_environment

TOPIC, QUEUES, KEYS, BODY_BYTES = "bench", 8, 4_000, 256
#: A pull asks for as many messages as fit into the handlers and the prefetch buffer: 256 in all.
CONCURRENCY, PREFETCH = 64, 192
MESSAGES, ROUNDS = 60_000, 3
_FIRST, _LAST = 1 / 3, 0.9
_LOOK_S, _LIMIT_S = 0.05, 300.0

COLUMNS = ("client", "messages/s", "of the fastest", "client CPU µs each", "proxy CPU µs each")


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one client in one round."""

    client: str
    round: int
    per_s: float
    client_us: float
    proxy_us: float


@dataclass(frozen=True, slots=True)
class _Look:
    t_s: float
    acked: int
    client_cpu_s: float
    proxy_cpu_s: float


def measure_one(language: Language, proxy: ProxyProcess, *, number: int, messages: int) -> Run:
    """Run one client from its start until it has received all messages."""
    group = _group(language, number)
    options = {
        "servers": proxy.thrift,
        "group": group,
        "concurrency": CONCURRENCY,
        "prefetch": PREFETCH,
        "client_id": group,
        "quiet": True,
    }
    looks: list[_Look] = []
    with subprocess.Popen(
        [*language.program(), json.dumps(options)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env=client_environment(),
    ) as client:
        try:
            deadline = time.monotonic() + _LIMIT_S
            while not looks or looks[-1].acked < messages:
                if client.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(
                        f"{language.name} ended or is stuck; last sample: {looks[-1:]}"
                    )
                looks.append(_look(proxy, group, client.pid))
                time.sleep(_LOOK_S)
            client.terminate()
            client.wait(timeout=60)
        finally:
            client.kill()
    first = next(look for look in looks if look.acked >= messages * _FIRST)
    last = next(look for look in looks if look.acked >= messages * _LAST)
    count = last.acked - first.acked
    return Run(
        language.name,
        number,
        per_s=count / (last.t_s - first.t_s),
        client_us=(last.client_cpu_s - first.client_cpu_s) / count * 1e6,
        proxy_us=(last.proxy_cpu_s - first.proxy_cpu_s) / count * 1e6,
    )


def measure(languages: Sequence[Language], *, messages: int, rounds: int) -> list[Run]:
    """Run all rounds; each begins with another client."""
    runs = []
    with _site(languages, messages=messages, rounds=rounds) as proxy:
        for number in range(rounds):
            turn = number % len(languages)
            for language in (*languages[turn:], *languages[:turn]):
                runs.append(measure_one(language, proxy, number=number, messages=messages))
                print(f"round {number + 1}: {language.name} {runs[-1].per_s:,.0f}/s", flush=True)
    return runs


def summary(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return one entry per client, the fastest first."""
    names = list(dict.fromkeys(run.client for run in runs))
    best = {
        number: max(run.per_s for run in runs if run.round == number)
        for number in {run.round for run in runs}
    }
    found = [
        {
            "client": name,
            "per_s": spread([run.per_s for run in own], digits=0),
            "ratio": spread([run.per_s / best[run.round] for run in own]),
            "client_us": spread([run.client_us for run in own], digits=1),
            "proxy_us": spread([run.proxy_us for run in own], digits=1),
        }
        for name in names
        if (own := [run for run in runs if run.client == name])
    ]
    return sorted(found, key=lambda each: -each["per_s"]["median"])


def rows(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of the printed table."""
    return [
        dict(
            zip(
                COLUMNS,
                (
                    each["client"],
                    shown(each["per_s"], digits=0),
                    shown(each["ratio"]),
                    shown(each["client_us"], digits=0),
                    shown(each["proxy_us"], digits=0),
                ),
                strict=True,
            )
        )
        for each in found
    ]


def _group(language: Language, number: int) -> str:
    return f"bench-{language.name}-{number}"


@contextmanager
def _site(languages: Sequence[Language], *, messages: int, rounds: int) -> Iterator[ProxyProcess]:
    with tempfile.TemporaryDirectory(prefix="orderlane-bench-") as name:
        folder = Path(name)
        groups = [_group(each, number) for each in languages for number in range(rounds)]
        topics = [{"name": TOPIC, "order_key": "KEY"}]
        settings = {
            "groups": [{"name": group, "topics": topics} for group in groups],
            "ownership": {"leave_after_s": 1},
        }
        (folder / "settings.yaml").write_text(json.dumps(settings))  # JSON is YAML
        with running_brokers(EMBEDDED, folder, flush="async") as brokers, Children(folder) as own:
            brokers.create_topic(TOPIC, queues=QUEUES)
            backlog = Backlog(
                stuck=0, mixed=messages, share=0.0, keys=KEYS, seed=1, body_bytes=BODY_BYTES
            )
            place = Place(brokers.nameserver, TOPIC, QUEUES)
            asyncio.run(backlog.store(place, history=None))
            where = ("--settings", "settings.yaml", "--nameserver", brokers.nameserver)
            child = own.start("proxy", *where, "--thrift-port", 0, "--http-port", 0)
            ready = child.ready()
            yield ProxyProcess(child, ready["thrift"], ready["http"])


def _look(proxy: ProxyProcess, group: str, pid: int) -> _Look:
    with urllib.request.urlopen(f"http://{proxy.http}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    pattern = rf'^orderlane_acks_total{{[^}}]*group="{group}"[^}}]*}} ([0-9.e+]+)$'
    acked = sum(float(value) for value in re.findall(pattern, text, flags=re.M))
    usage = proxy.usage()
    return _Look(time.monotonic(), int(acked), cpu_s(pid), usage.cpu_s)


def _is_built(language: Language) -> bool:
    try:
        program = language.program()
    except OSError:  # no class path was written
        return False
    needed = [Path(word) for word in program if str(word).startswith(str(ROOT))]
    return not language.missing and all(":" in str(path) or path.exists() for path in needed)


def main() -> int:
    """Measure, write the result, print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results/clients-embedded.json")
    options = parser.parse_args()
    for row in record(options.out, messages=options.messages, rounds=options.rounds):
        print("  ".join(f"{name} {value}" for name, value in row.items()))
    return 0


def record(
    out: Path, *, messages: int = 2 * MESSAGES, rounds: int = ROUNDS
) -> list[dict[str, Any]]:
    """Measure all clients that are built, write the result to *out* and return the table."""
    languages = [language for language in LANGUAGES if _is_built(language)]
    absent = [language.name for language in LANGUAGES if language not in languages]
    if absent:
        print(f"not built, so left out: {', '.join(absent)}", file=sys.stderr)
    runs = measure(languages, messages=messages, rounds=rounds)
    found = summary(runs)
    write_result(
        out,
        "clients",
        command=f"python -m bench.bench_clients --messages {messages} --rounds {rounds}",
        options={"concurrency": CONCURRENCY, "prefetch": PREFETCH, "keys": KEYS, "queues": QUEUES},
        summary=found,
        runs=[vars_of(run) for run in runs],
    )
    return rows(found)


def vars_of(run: Run) -> dict[str, Any]:
    """Return a run as plain data."""
    return {
        "client": run.client,
        "round": run.round,
        "per_s": round(run.per_s),
        "client_us": round(run.client_us, 1),
        "proxy_us": round(run.proxy_us, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
