"""The reports of a stream's progress: which ones are due. Pure: times are arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

#: Time after which an idle stream repeats a report that had no effect. The proxy takes the progress
#: of another ``consumerId`` after the same time.
AGAIN_S = 60.0


class Outcome(Enum):
    """The outcome of a report: *TAKEN*; *REFUSED*: the proxy took the counts, but not the offsets;
    *FAILED*: the proxy may not have it.
    """

    TAKEN = auto()
    REFUSED = auto()
    FAILED = auto()


@dataclass(slots=True)
class Reports:
    """The reports of one stream."""

    _last: Mapping[str, Mapping[str, int]] | None = None
    _again_s: float | None = None

    def are_due(self, offsets: Mapping[str, Mapping[str, int]], now_s: float) -> bool:
        """Return whether *offsets* have to be reported."""
        if not offsets:
            return False
        if offsets != self._last:
            return True
        return self._again_s is not None and now_s >= self._again_s

    def ended(
        self, offsets: Mapping[str, Mapping[str, int]], outcome: Outcome, now_s: float
    ) -> None:
        """Note the *outcome* of a report of *offsets*."""
        self._last = offsets
        self._again_s = None if outcome is Outcome.TAKEN else now_s + AGAIN_S
