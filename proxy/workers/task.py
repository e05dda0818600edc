"""What a worker is told when it is started: pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import orjson


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The only argument of a worker's process, as JSON."""

    number: int
    channel: int
    """Number of the open file by which it speaks with the supervisor."""
    settings: str | None
    """The settings file, which it reads and watches itself."""
    overrides: dict[str, Any]
    """Options over that file and the environment, by dotted names."""
    history: str | None
    log_level: str
    workers: list[str]
    """The HTTP addresses of all workers; empty if they take any free port."""

    def text(self) -> str:
        """As an argument."""
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def read(cls, text: str) -> Self:
        """The task that *text* is of."""
        return cls(**orjson.loads(text))
