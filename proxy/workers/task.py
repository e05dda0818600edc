"""The argument of a worker process. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Self

import orjson


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The only argument of a worker's process, as JSON."""

    number: int
    channel: int
    """File number of its channel to the supervisor."""
    settings: str | None
    """The settings file, which the worker watches itself."""
    contents: tuple[int, ...]
    """Sizes of its two contents on the standard input: see ``ServedFile``."""
    overrides: dict[str, Any]
    """Options that override the file and the environment, by dotted names."""
    history: str | None
    log_level: str
    workers: list[str]
    """HTTP addresses of all workers; empty if they use free ports."""

    def text(self) -> str:
        """Return the argument."""
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def read(cls, text: str) -> Self:
        """Parse an argument."""
        return cls(**orjson.loads(text))
