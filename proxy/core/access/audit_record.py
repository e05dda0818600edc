"""What is written down of each change that a person asks for: who, what, why, before, after. Pure.

One record a change, stored *before* the change takes effect: so none exists without its record,
whoever crashes when. It says what the change is going to lead to (``after``). Where it led to
something else, or to nothing, a second record under the same ``id`` says so (``phase`` ``end``).
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
#: Longer ones are cut: a record is for people.
_MAX_TEXT = 2048
#: In the record of a change for a broker that takes no longer ones.
_SHORT_TEXT = 400


class Phase(StrEnum):
    """Whether a record was stored before its change, or says what became of it."""

    BEGIN = "begin"
    END = "end"


@dataclass(frozen=True, slots=True)
class Change:
    """A change that ``actor`` asks for. ``verb`` is noun and verb, as ``key pause``; ``target`` is
    what of the group it is about: a key, a queue, a lease. ``before`` and ``after`` are anything
    JSON knows; ``after`` is what it is meant to be.
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
    """One message of the audit topic. ``at_ms`` is wall time; ``failed`` says why nothing came of
    the change, "" if something did.
    """

    id: str
    at_ms: int
    proxy: str
    change: Change
    phase: Phase = Phase.BEGIN
    failed: str = ""

    def row(self) -> dict[str, Any]:
        """All fields by name."""
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
    """*text*, which came from anywhere, as a record can carry it: short, and proper Unicode."""
    return text[:_MAX_TEXT].encode("utf-8", "replace").decode()


def shortened(record: AuditRecord) -> AuditRecord:
    """What *record* says in as few bytes as possible, for a broker that takes no longer one: what
    was before and after is left out, and the record says so.
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
    return f"left out: {size} bytes, more than the broker takes"


def encode(record: AuditRecord) -> bytes:
    """The record as the body of a message."""
    return orjson.dumps({"v": _VERSION, **record.row()}, default=str)


def decode(body: bytes) -> AuditRecord:
    """Undo ``encode``. Raises ValueError on anything that is no such record."""
    try:
        row = orjson.loads(body)
        if row["v"] != _VERSION:
            raise ValueError(f"its version is {row['v']}, not {_VERSION}")
        texts = {
            name: str(row[name]) for name in ("actor", "verb", "group", "reason", "topic", "target")
        }
        change = Change(**texts, before=row["before"], after=row["after"])
        at_ms = int(row["at_ms"])
        if not 0 <= at_ms < 2**63:  # nobody could show it
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
    """Which records to show; ``None`` for any. The newest ``limit`` of them."""

    limit: int = 100
    group: str | None = None
    topic: str | None = None
    target: str | None = None

    def takes(self, record: AuditRecord) -> bool:
        """True if it is one of them."""
        change = record.change
        return (
            self.group in (None, change.group)
            and self.topic in (None, change.topic)
            and self.target in (None, change.target)
        )


@dataclass(slots=True)
class Merged:
    """Records of several queues in one row, by time; what was stored twice stands there once."""

    _seen: dict[tuple[str, Phase], AuditRecord] = field(default_factory=dict)

    def add(self, records: Iterable[AuditRecord]) -> None:
        """Records of one queue."""
        for record in records:
            self._seen.setdefault((record.id, record.phase), record)

    def newest(self, limit: int) -> list[AuditRecord]:
        """The newest *limit* of all, the oldest first."""
        ordered = sorted(self._seen.values(), key=lambda each: (each.at_ms, each.id, each.phase))
        return ordered[-limit:]
