"""Throughput of the history checker.

``python -m bench.bench_history MESSAGES`` prints one line of JSON with events per second and peak
memory. The history is generated: 8 queues, 4,000 keys, 7 events per message, all in order.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import orjson

from proxy.history.check import verify

QUEUES, KEYS = 8, 4_000


def events(messages: int) -> Iterator[dict[str, object]]:
    """Yield the events of a run that keeps every promise."""
    for queue in range(QUEUES):
        yield {"e": "own+", **_lane(queue), "epoch": 1, "owner": "p"}
    for number in range(messages):
        queue, offset = number % QUEUES, number // QUEUES
        message = {"msg": f"{number:032X}", "offset": offset}
        lane = _lane(queue)
        handled = {**lane, **message, "order": f"N{number % KEYS}", "lease": offset}
        yield {"e": "send", **message, "topic": "t", "key": "k"}
        yield {"e": "send_ok", **message, "topic": "t", "queue": lane["queue"]}
        yield {"e": "deliver", **handled, "attempt": 1, "epoch": 1, "consumer": "c"}
        yield {"e": "handle_start", **handled, "attempt": 1, "consumer": "c"}
        yield {"e": "handle_end", **handled, "attempt": 1, "consumer": "c", "outcome": "ok"}
        yield {
            "e": "ack_ok",
            **lane,
            "epoch": 1,
            "offset": offset,
            "lease": offset,
            "outcome": "ok",
        }
        yield {"e": "finish", **lane, "epoch": 1, "offset": offset, "outcome": "ok"}


def _lane(queue: int) -> dict[str, object]:
    return {"group": "g", "topic": "t", "queue": f"broker-a_{queue}"}


def main(messages: int) -> None:
    """Write, verify, report."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "n.jsonl"
        with path.open("wb") as file:
            for number, event in enumerate(events(messages)):
                file.write(orjson.dumps({**event, "t_ns": number, "node": "n"}) + b"\n")
        began = time.perf_counter()
        report = verify([path])
        seconds = time.perf_counter() - began
    assert report.clean
    result = {
        "events_per_s": round(report.counts.events / seconds),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(int(sys.argv[1]))
