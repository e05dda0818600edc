"""A limit of work, in steps, so that it does not depend on the speed of a machine. Pure."""

from __future__ import annotations

from dataclasses import dataclass

#: Steps for the order key of one message: about 30 ms.
MAX_STEPS = 100_000


class TooMuchWork(ValueError):
    """The limit is reached: there is no result."""


@dataclass(slots=True)
class Work:
    """The steps that are left."""

    left: int = MAX_STEPS

    def take(self, steps: int) -> None:
        """Take *steps*. Raise TooMuchWork if fewer are left."""
        self.left -= steps
        if self.left < 0:
            raise TooMuchWork(f"it takes more than {MAX_STEPS:,} steps")
