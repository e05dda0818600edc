"""The take-overs of peers: how long do messages wait when the process that serves them ends?

Two consumers share the load. What ends is the proxy of the first one, or, for products without a
proxy, the first consumer itself. A wait counts from a message's due time to its handler.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.frame.context import RunContext
from bench.peers.open_load import OpenWork, Outage, outage
from bench.peers.open_registry import OPEN_PEERS
from bench.report import spread
from proxy.errors import OrderlaneError

#: Load after the end, besides the time of a stop.
_AFTER_S = 10.0


@dataclass(frozen=True, slots=True)
class PeerPlan:
    """The load, and *stop_s*, the length of SIGSTOP; *before_s*: time under load before the end."""

    queues: int
    keys: int
    rate: float
    work_ms: float
    before_s: float
    stop_s: float
    seed: int

    def work(self, end: str) -> OpenWork:
        """Return the load around the signal *end*."""
        stop_s = self.stop_s if end == "SIGSTOP" else 0.0
        return OpenWork(
            self.rate,
            self.before_s + stop_s + _AFTER_S,
            keys=self.keys,
            queues=self.queues,
            work_ms=self.work_ms,
            seed=self.seed,
        )


@dataclass(frozen=True, slots=True)
class PeerRun:
    """One end of one process of the peer *system*: an outage, or the *error* that stopped the
    run.
    """

    system: str
    end: str
    round: int
    outage: Outage | None
    error: str = ""

    def plain(self) -> dict[str, Any]:
        """Return the run for the result file."""
        about = {"system": self.system, "end": self.end, "round": self.round}
        return {**about, **({"error": self.error} if self.outage is None else asdict(self.outage))}


def check(names: Sequence[str]) -> None:
    """Raise OrderlaneError unless *names* are peers."""
    if unknown := [name for name in names if name not in OPEN_PEERS]:
        raise OrderlaneError(f"--vs {unknown[0]!r}: expected one of {', '.join(OPEN_PEERS)}")


def run(name: str, plan: PeerPlan, *, end: str, number: int, say: Callable[[str], None]) -> PeerRun:
    """Run the peer *name* once. An error ends its run, and becomes part of the result."""
    with tempfile.TemporaryDirectory(prefix="orderlane-bench-") as folder:
        context = RunContext(Path(folder), plan.seed, number, "short", histories=False)
        try:
            found = outage(
                OPEN_PEERS[name],
                context,
                plan.work(end),
                end=end,
                before_s=plan.before_s,
                stop_s=plan.stop_s,
            )
        except Exception as error:  # reported with the others
            sentence = _sentence(error)
            say(f"{name}, {end}: did not finish: {sentence}")
            return PeerRun(name, end, number, None, sentence)
    say(f"{name}, {end}: worst gap {found.gap_worst_s:.2f} s, {found.again} repeated messages")
    return PeerRun(name, end, number, found)


def summaries(runs: Sequence[PeerRun]) -> Iterator[dict[str, Any]]:
    """Yield a summary for each peer and end, in the order of their first runs; the error of runs
    that did not finish if none did.
    """
    for system, end in dict.fromkeys((each.system, each.end) for each in runs):
        here = [each for each in runs if (each.system, each.end) == (system, end)]
        found = [each.outage for each in here if each.outage is not None]
        if not found:
            yield {"system": system, "end": end, "error": here[-1].error}
            continue
        yield {
            "system": system,
            "end": end,
            "gap_worst_s": spread([each.gap_worst_s for each in found]),
            "gap_median_s": spread([each.gap_median_s for each in found]),
            "pause_s": spread([each.pause_s for each in found]),
            "again": spread([each.again for each in found]),
            "duplicates": spread([each.duplicates for each in found]),
            "violations": sum(each.faults for each in found),
        }


def _sentence(error: Exception) -> str:
    """Return a short error text. Logs may be included; the first and last lines say most."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return (lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}")[:600]
