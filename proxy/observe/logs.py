"""Logging setup: JSON lines in production, colours on a terminal. Logs go to stderr, so that stdout
stays data.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from io import StringIO
from textwrap import indent
from types import TracebackType
from typing import Any, Self, TextIO

import orjson
import structlog
from structlog.typing import EventDict, ExcInfo, Processor

from broker_core.clock import now_ns
from broker_core.names import QueueName
from broker_core.printable import printable, printable_json

_SECOND_NS = 1_000_000_000

_SHARED: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def configure_logs(*, level: str = "info", json_lines: bool | None = None) -> None:
    """Configure all logs of this process, including those of libraries that use ``logging``.

    *json_lines* None means JSON unless stderr is a terminal. Called once, by the command line.
    """
    as_json = not sys.stderr.isatty() if json_lines is None else json_lines
    # Plain tracebacks: rendering frames with all variables takes half a second each.
    colours = structlog.dev.ConsoleRenderer(exception_formatter=_plain_traceback)
    last = _json_renderer() if as_json else [_escaped, colours]
    structlog.configure(
        processors=[*_SHARED, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)


def queue_log(name: str, *, group: str, queue: QueueName) -> Any:
    """Return a logger that adds group, topic and qid to every line."""
    return structlog.get_logger(name).bind(group=group, topic=queue.topic, qid=queue.qid)


@dataclass(slots=True)
class NoisyLog:
    """Rate-limited warnings: at most one line per key in ``every_s`` seconds.

    The next line of the key reports the number of suppressed lines. O(1) per call; ``max_keys``
    bounds memory.
    """

    log: Any
    every_s: float = 10.0
    max_keys: int = 1024
    clock_ns: Callable[[], int] = now_ns
    _seen: dict[str, tuple[int, int]] = field(
        default_factory=dict
    )  # key → time of the last line, lines suppressed since

    def warning(self, key: str, event: str, **fields: Any) -> None:
        """Log *event* with *fields*, unless *key* had a line less than ``every_s`` ago."""
        now = self.clock_ns()
        last_ns, left_out = self._seen.pop(key, (None, 0))
        if last_ns is not None and now - last_ns < self.every_s * _SECOND_NS:
            self._seen[key] = (last_ns, left_out + 1)
            return
        if len(self._seen) >= self.max_keys:
            del self._seen[next(iter(self._seen))]  # the key quiet for the longest time
        self._seen[key] = (now, 0)
        self.log.warning(event, **fields, **({"left_out": left_out} if left_out else {}))

    def confined(self, key: str, event: str, **fields: Any) -> Confined:
        """Return a context for work on one of several items: if it fails, that is logged like a
        ``warning``, and the others are not affected.
        """
        return Confined(self, key, event, fields)


class Confined:
    """See ``NoisyLog.confined``. ``failed`` tells how the block ended."""

    __slots__ = ("_event", "_fields", "_key", "_noisy", "failed")

    def __init__(self, noisy: NoisyLog, key: str, event: str, fields: Mapping[str, Any]) -> None:
        self._noisy, self._key, self._event, self._fields = noisy, key, event, fields
        self.failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.failed = True
        fields = {**self._fields, "reason": str(error), "exc_info": error}
        self._noisy.warning(self._key, self._event, **fields)
        return True


def _json_renderer() -> list[Processor]:
    return [
        structlog.processors.format_exc_info,
        structlog.processors.JSONRenderer(serializer=_json_text),
    ]


def _plain_traceback(out: TextIO, exc_info: ExcInfo) -> None:
    """Write the traceback escaped and indented: the text of an error may quote a stranger's, and
    must not look like a line of the log.
    """
    text = StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    out.write(indent(printable(text.getvalue(), "\n\t"), "  "))


def _json_text(event: Any, **_: Any) -> str:
    try:
        line = orjson.dumps(event, default=repr, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # half a surrogate pair, which no JSON contains
        line = orjson.dumps(_escaped(None, "", event), default=repr)
    return printable_json(line.decode())


def _escaped(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Escape what strangers wrote, before the renderer adds its own escape sequences."""
    return {printable(name): _escaped_value(value) for name, value in event.items()}


def _escaped_value(value: Any) -> Any:
    """Return *value* as the renderer would show it, escaped; exceptions are rendered later."""
    if isinstance(value, str):
        return printable(value)
    if value is None or isinstance(value, bool | int | float | BaseException | tuple):
        return value
    return printable(repr(value))
