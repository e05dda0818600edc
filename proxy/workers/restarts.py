"""Decides on restarts and kills of workers, and describes their exits. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass

#: Pause before a restart, doubled with each exit soon after a start.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 30.0
#: A worker that ran for this time counts as healthy, and earlier exits are forgotten.
_RAN_WELL_S = 60.0
#: A worker reports each second. One that is silent for this time is killed; not earlier, because
#: its queues have long moved, and it may only wait for a slow disk or a debugger.
SILENT_S = 60.0
#: The supervisor checks each second. A check later than this means that the supervisor, and
#: probably every worker, was suspended: the silence is measured again from then.
_LATE_S = 5.0


@dataclass(slots=True)
class Restarts:
    """Restarts of one worker."""

    soon: int = 0  # consecutive exits soon after a start

    def pause_s(self, ran_s: float) -> float:
        """Return the seconds to wait after an exit that followed *ran_s* seconds."""
        self.soon = 1 if ran_s >= _RAN_WELL_S else self.soon + 1
        return float(min(_FIRST_PAUSE_S * 2 ** min(self.soon - 1, 20), _LONGEST_PAUSE_S))


@dataclass(slots=True)
class Silence:
    """Detects a worker that stopped reporting; times in seconds of one clock."""

    heard_s: float
    looked_s: float

    def heard(self, now_s: float) -> None:
        """Record a report."""
        self.heard_s = now_s

    def too_long(self, now_s: float) -> bool:
        """Check; return True if the worker has to be killed."""
        late = now_s - self.looked_s > _LATE_S
        self.looked_s = now_s
        if late:
            self.heard_s = now_s
        return now_s - self.heard_s > SILENT_S


def how(code: int) -> str:
    """Describe an exit code: ``with code 2``, ``by SIGKILL``."""
    if code >= 0:
        return f"with code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def bad_ends(codes: Mapping[int, int]) -> str | None:
    """Return a sentence if any exit code of workers that were asked to stop is a failure."""
    bad = [f"worker {number} ended {how(code)}" for number, code in sorted(codes.items()) if code]
    return f"{', '.join(bad)} instead of draining" if bad else None
