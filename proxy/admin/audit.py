"""Audit records in the admin API."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from proxy.admin.operations import Call, Operation, get
from proxy.core.access.audit_record import AuditWish
from proxy.operator.request_models import Answer, RequestModel
from proxy.upstream.audit import Audit

MOST_SHOWN = 10_000


class AuditQuery(RequestModel):
    """Selects audit records."""

    limit: Annotated[
        int, Field(description=f"a number from 1 to {MOST_SHOWN:,}", ge=1, le=MOST_SHOWN)
    ] = 100
    group: Annotated[
        str | None, Field(description="the changed group", min_length=1, max_length=500)
    ] = None
    topic: Annotated[str | None, Field(description="the topic", min_length=1, max_length=500)] = (
        None
    )
    target: Annotated[
        str | None, Field(description="the key, queue or lease", min_length=1, max_length=500)
    ] = None
    after: Annotated[
        str | None,
        Field(
            description='the "position" of an earlier answer',
            pattern=r"^([^,]+_[0-9]{1,10}:[0-9]{1,18}(,|$))+$",
            max_length=65_536,  # a queue of each broker
        ),
    ] = None


class AuditRow(Answer):
    """One record.

    ``phase`` ``begin`` is stored before the change, with the intended result. ``end`` follows if
    the result differs or the change ``failed``.
    """

    id: str
    at_ms: int
    phase: str
    actor: str
    verb: str
    group: str
    topic: str
    target: str
    reason: str
    before: Any
    after: Any
    failed: str
    proxy: str


class AuditView(Answer):
    """The newest records, oldest first. Pass ``position`` as ``after`` to get later ones.

    ``complete``: there are no older ones (behind ``after``), and all brokers answered. A request
    looks at the newest 10,000 records of each broker. ``unanswered``: errors of those that failed.
    """

    records: list[AuditRow]
    position: str
    complete: bool
    unanswered: dict[str, str] = Field(default_factory=dict)


class AuditSurface:
    """``GET /api/audit``."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def operations(self) -> list[Operation]:
        """Return the operations."""
        return [
            get(
                "/api/audit",
                "List audit records of changes.",
                self._show,
                query=AuditQuery,
                answer=AuditView,
                errors=(503,),
            )
        ]

    async def _show(self, call: Call) -> dict[str, Any]:
        asked: AuditQuery = call.query
        places = [each.rpartition(":") for each in (asked.after or "").split(",") if each]
        wish = AuditWish(asked.limit, asked.group, asked.topic, asked.target)
        page = await self._audit.read(
            wish, position={queue: int(offset) for queue, _, offset in places}
        )
        return {
            "records": [record.row() for record in page.records],
            "position": ",".join(f"{queue}:{offset}" for queue, offset in page.position.items()),
            "complete": page.complete,
            "unanswered": page.unanswered,
        }
