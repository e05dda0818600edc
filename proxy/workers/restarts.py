"""When a worker is started again, when it is given up, and how all of them ended: pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass

#: Pause before a worker is started again, doubled with each end soon after its start.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 30.0
#: After so long it ran well, and what was before is forgotten.
_RAN_WELL_S = 60.0
#: A worker tells of itself each second. One that is silent for so long is killed; not sooner: its
#: queues have been others' for long by then, and it may just wait for a slow disk or a debugger.
SILENT_S = 60.0
#: Of the supervisor's own looks, which come each second. One that comes so late says that this
#: process stood still, and probably all did: silence counts anew from there.
_LATE_S = 5.0


@dataclass(slots=True)
class Restarts:
    """Of one worker."""

    soon: int = 0  # ends in a row, each soon after its start

    def pause_s(self, ran_s: float) -> float:
        """Seconds to wait, now that it ended after *ran_s* seconds."""
        self.soon = 1 if ran_s >= _RAN_WELL_S else self.soon + 1
        return float(min(_FIRST_PAUSE_S * 2 ** min(self.soon - 1, 20), _LONGEST_PAUSE_S))


@dataclass(slots=True)
class Silence:
    """Whether a worker does not answer any more; times in seconds, of one clock."""

    heard_s: float
    looked_s: float

    def heard(self, now_s: float) -> None:
        """It told of itself."""
        self.heard_s = now_s

    def too_long(self, now_s: float) -> bool:
        """Look; True if it is to be killed."""
        late = now_s - self.looked_s > _LATE_S
        self.looked_s = now_s
        if late:
            self.heard_s = now_s
        return now_s - self.heard_s > SILENT_S


def how(code: int) -> str:
    """An exit code in words: ``with code 2``, ``by SIGKILL``."""
    if code >= 0:
        return f"with code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def bad_ends(codes: Mapping[int, int]) -> str | None:
    """*codes* are those with which workers ended that were told to; a sentence if some failed."""
    bad = [f"worker {number} ended {how(code)}" for number, code in sorted(codes.items()) if code]
    return f"{', '.join(bad)} instead of draining" if bad else None
