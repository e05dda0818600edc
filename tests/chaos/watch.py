"""``python -m tests.chaos.watch FOLDER``: judge histories while they are written, until SIGTERM.

Prints a line of JSON at the first violation, and one at the end. It stays ``_BEHIND_S`` behind the
present, because a process stopped between an event and its line writes the line late. Later lines
are counted, and left to the final check.
"""

from __future__ import annotations

import heapq
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

from broker_core.clock import now_ns
from proxy.cli.output import print_json
from proxy.history.check import HistoryChecker
from proxy.history.reader import Event, event_of

#: Longer than any stop of a process.
_BEHIND_S = 30.0
_LOOK_S = 0.5


@dataclass(slots=True)
class Tail:
    """Events of the files in *folder*, in order of time, as far as known."""

    folder: Path
    late: int = 0
    """Lines that arrived after later ones had been returned."""
    _files: dict[Path, BinaryIO] = field(default_factory=dict)
    _rests: dict[Path, bytes] = field(default_factory=dict)
    _waiting: list[tuple[int, int, Event]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)
    _told_ns: int = 0

    def until(self, t_ns: int) -> Iterator[Event]:
        """Yield new events up to *t_ns*."""
        for path in sorted(self.folder.glob("*.jsonl")):
            self._read(path)
        while self._waiting and self._waiting[0][0] <= t_ns:
            yield heapq.heappop(self._waiting)[2]
        self._told_ns = max(self._told_ns, t_ns)

    def close(self) -> None:
        """Stop reading."""
        for file in self._files.values():
            file.close()

    def _read(self, path: Path) -> None:
        if path not in self._files:
            self._files[path] = path.open("rb")
        *lines, rest = (self._rests.get(path, b"") + self._files[path].read()).split(b"\n")
        self._rests[path] = rest
        for event in map(event_of, lines):
            if event is None:  # torn by a kill
                continue
            if event["t_ns"] <= self._told_ns:
                self.late += 1
            else:
                heapq.heappush(self._waiting, (event["t_ns"], next(self._numbers), event))


def main() -> int:
    tail, checker, stopping = Tail(Path(sys.argv[1])), HistoryChecker(), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    found: dict[str, Any] = {}
    events = 0
    while not stopping.is_set():
        stopping.wait(_LOOK_S)
        for event in tail.until(now_ns() - int(_BEHIND_S * 1e9)):
            checker.on_event(event)
            events += 1
            if checker.violations and not found and not tail.late:
                found = {name: each.examples for name, each in checker.violations.items()}
                print_json({"violations": found, "at_ns": event["t_ns"]})
        if tail.late and checker.violations and not found:
            break  # may be caused by late lines: left to the final check
    tail.close()
    print_json({"events": events, "late": tail.late, "found": len(found)})
    return 0


if __name__ == "__main__":
    sys.exit(main())
