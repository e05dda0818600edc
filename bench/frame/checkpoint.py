"""A log of finished runs, one line of JSON each, so that a long case can resume."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from bench.frame.case import Point
from bench.frame.figures import Figures
from bench.frame.schedule import Turn


@dataclass(frozen=True, slots=True)
class Run:
    """The result of one turn: *figures*, or a sentence that explains their absence."""

    point: Point
    arm: str
    round: int
    took_s: float
    figures: Figures | None = None
    error: str | None = None

    def plain(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {name: value for name, value in asdict(self).items() if value is not None}


class Checkpoint:
    """Runs of the same code with the same options, which *of* identifies.

    Runs with another *of*, and failed runs, are repeated.
    """

    def __init__(self, path: Path, *, of: str, resume: bool) -> None:
        """Read *path* if *resume*; otherwise start empty."""
        self._path, self._of = path, of
        self._runs: dict[tuple[Point, str, int], Run] = {}
        if resume and path.exists():
            self._read()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(map(self._line, self._runs.values())))

    def find(self, turn: Turn) -> Run | None:
        """Return the run of *turn*, if it was done."""
        return self._runs.get((turn.point, turn.arm, turn.round))

    def add(self, run: Run) -> None:
        """Append *run*."""
        self._runs[run.point, run.arm, run.round] = run
        with self._path.open("ab") as file:
            file.write(self._line(run))

    def _read(self) -> None:
        for line in self._path.read_bytes().split(b"\n")[:-1]:  # the last line may be incomplete
            fields = orjson.loads(line)
            if fields.pop("of") == self._of:
                run = Run(**fields)
                self._runs[run.point, run.arm, run.round] = run

    def _line(self, run: Run) -> bytes:
        return orjson.dumps({"of": self._of, **run.plain()}) + b"\n"
