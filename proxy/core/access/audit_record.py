"""Audit records of changes made by people: actor, verb, reason, state before and after. Pure.

Each change has one record, stored *before* the change takes effect, so no change exists without a
record even after a crash. ``after`` is the intended state. If the outcome differs, or the change
fails, a second record with the same ``id`` says so (``phase`` ``end``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import orjson

from broker_core.names import Topic

AUDIT_TOPIC = Topic("%AUDIT%orderlane")
_VERSION = 1
#: Longest text; longer ones are cut, because people read the records.
_MAX_TEXT = 2048
#: Longest text in a record that the broker would otherwise refuse as too large.
_SHORT_TEXT = 400


class Phase(StrEnum):
    """Whether a record was stored before its change, or reports its outcome."""

    BEGIN = "begin"
    END = "end"


@dataclass(frozen=True, slots=True)
class Change:
    """A change requested by ``actor``. ``verb`` is noun and verb, such as ``key pause``; ``target``
    is the key, queue or lease concerned. ``before`` and ``after`` are JSON values; ``after`` is the
    intended state.
    """

    actor: str
    verb: str
    group: str
    reason: str
    topic: str = ""
    target: str = ""
    before: Any = None
    after: Any = None


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One message of the audit topic. ``at_ms`` is wall time; ``failed`` is the reason why the
    change failed, "" if it did not.
    """

    id: str
    at_ms: int
    proxy: str
    change: Change
    phase: Phase = Phase.BEGIN
    failed: str = ""

    def row(self) -> dict[str, Any]:
        """Return all fields by name."""
        change = self.change
        return {
            "id": self.id,
            "at_ms": self.at_ms,
            "phase": str(self.phase),
            "actor": change.actor,
            "verb": change.verb,
            "group": change.group,
            "topic": change.topic,
            "target": change.target,
            "reason": change.reason,
            "before": change.before,
            "after": change.after,
            "failed": self.failed,
            "proxy": self.proxy,
        }


def audit_text(text: str) -> str:
    """Return *text*, from any source, in a form that a record can contain: short, valid Unicode."""
    return text[:_MAX_TEXT].encode("utf-8", "replace").decode()


def shortened(record: AuditRecord) -> AuditRecord:
    """Return *record* in as few bytes as possible, for a broker with a smaller size limit: the
    states before and after are replaced by a remark if they are long.
    """
    change = record.change
    return replace(
        record,
        failed=record.failed[:_SHORT_TEXT],
        change=replace(
            change,
            actor=change.actor[:_SHORT_TEXT],
            reason=change.reason[:_SHORT_TEXT],
            target=change.target[:_SHORT_TEXT],
            before=_left_out(change.before),
            after=_left_out(change.after),
        ),
    )


def _left_out(state: Any) -> Any:
    size = len(orjson.dumps(state, default=str))
    if size <= _SHORT_TEXT:
        return state
    return f"left out: {size} bytes, more than the broker accepts"


def encode(record: AuditRecord) -> bytes:
    """Return the record as the body of a message."""
    return orjson.dumps({"v": _VERSION, **record.row()}, default=str)


def decode(body: bytes) -> AuditRecord:
    """Undo ``encode``. Raise ValueError if *body* is not an audit record."""
    try:
        row = orjson.loads(body)
        if row["v"] != _VERSION:
            raise ValueError(f"its version is {row['v']}, not {_VERSION}")
        texts = {
            name: str(row[name]) for name in ("actor", "verb", "group", "reason", "topic", "target")
        }
        change = Change(**texts, before=row["before"], after=row["after"])
        at_ms = int(row["at_ms"])
        if not 0 <= at_ms < 2**63:  # dates beyond cannot be shown
            raise ValueError(f"its time is {at_ms}, not 0 to 2^63 - 1")
        return AuditRecord(
            str(row["id"]),
            at_ms,
            str(row["proxy"]),
            change,
            Phase(row["phase"]),
            str(row["failed"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise ValueError(f"not an audit record: {error!r}") from error


@dataclass(frozen=True, slots=True)
class AuditWish:
    """Filter for audit records; ``None`` matches any. Only the newest ``limit`` are shown."""

    limit: int = 100
    group: str | None = None
    topic: str | None = None
    target: str | None = None

    def takes(self, record: AuditRecord) -> bool:
        """Return True if *record* matches."""
        change = record.change
        return (
            self.group in (None, change.group)
            and self.topic in (None, change.topic)
            and self.target in (None, change.target)
        )


@dataclass(slots=True)
class Merged:
    """Records of several queues merged by time; duplicates are removed."""

    _seen: dict[tuple[str, Phase], AuditRecord] = field(default_factory=dict)

    def __len__(self) -> int:
        """Number of records."""
        return len(self._seen)

    def add(self, records: Iterable[AuditRecord]) -> None:
        """Add the records of one queue."""
        for record in records:
            self._seen.setdefault((record.id, record.phase), record)

    def newest(self, limit: int) -> list[AuditRecord]:
        """Return the newest *limit* records, the oldest first."""
        ordered = sorted(self._seen.values(), key=lambda each: (each.at_ms, each.id, each.phase))
        return ordered[-limit:]
