"""Stored groups in the admin API: describe, create, update, delete."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from proxy.admin.checking import Malformed
from proxy.admin.operations import LOOKS, Call, Operation, get
from proxy.errors import SettingsError
from proxy.live.group_desk import GroupDesk, Wish
from proxy.operator.request_models import Actor, Answer, ChangeBody, Reason, RequestModel

_PLACE = "/api/groups/{group}"
_CHANGES = (404, 409, 503)


def _integral(value: object) -> object:
    """Convert 2.0 to 2, since JSON has one number type."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Version = Annotated[int, Field(ge=0, lt=2**53), BeforeValidator(_integral)]
Expect = Annotated[
    _Version | None,
    Field(description="the current version of the group, 0 if it is not stored (default: any)"),
]
DryRun = Annotated[bool, Field(description="true or false: only show the effect, change nothing")]


class GroupBody(ChangeBody):
    """Settings of a group as in a settings file, without its name."""

    settings: Annotated[
        dict[str, Any], Field(description="an object with the settings of the group")
    ]
    expect: Expect = None
    dry_run: DryRun = False

    def named_topics(self) -> tuple[str, ...]:
        """Return the topics in the settings: their messages may be sent to a target named there."""
        topics = self.settings.get("topics")
        names = [
            topic.get("name")
            for topic in (topics if isinstance(topics, list) else [])
            if isinstance(topic, dict)
        ]
        return tuple(dict.fromkeys(name for name in names if isinstance(name, str)))


class DeleteQuery(RequestModel):
    """Parameters of a deletion."""

    reason: Reason
    by: Actor = None
    expect: Expect = None
    dry_run: DryRun = False


class StoredGroupView(Answer):
    """A group. ``version``: 0 if it is not stored; ``refused``: why stored settings are refused;
    ``unsigned``: settings that a nameserver has without a valid signature, which are not used.
    """

    group: str
    source: str
    version: int
    settings: dict[str, Any] | None
    refused: str | None
    unsigned: dict[str, Any] | None


class GroupChangeView(Answer):
    """A change of a group. ``version`` is the current one after the request."""

    group: str
    version: int
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    changed: bool


class GroupSurface:
    """``GET``, ``PUT`` and ``DELETE /api/groups/GROUP``."""

    def __init__(self, desk: GroupDesk) -> None:
        self._desk = desk

    def operations(self) -> list[Operation]:
        """Return the operations."""
        return [
            get(
                _PLACE,
                "Show the source and settings of a group.",
                self._describe,
                answer=StoredGroupView,
                errors=LOOKS,
            ),
            Operation(
                method="PUT",
                path=_PLACE,
                summary="Create or update a stored group, for all proxies that use the store.",
                handle=self._put,
                body=GroupBody,
                answer=GroupChangeView,
                errors=_CHANGES,
            ),
            Operation(
                method="DELETE",
                path=_PLACE,
                summary="Delete a stored group; its queues are released.",
                handle=self._delete,
                query=DeleteQuery,
                answer=GroupChangeView,
                errors=_CHANGES,
            ),
        ]

    async def _describe(self, call: Call) -> dict[str, Any]:
        return self._desk.describe(call.path["group"])

    async def _put(self, call: Call) -> dict[str, Any]:
        asked: GroupBody = call.body
        wish = Wish(call.by, asked.reason, asked.expect, asked.dry_run)
        try:
            return await self._desk.put(call.path["group"], asked.settings, wish)
        except SettingsError as error:
            raise Malformed("; ".join(str(error).splitlines())) from None

    async def _delete(self, call: Call) -> dict[str, Any]:
        asked: DeleteQuery = call.query
        wish = Wish(call.by, asked.reason, asked.expect, asked.dry_run)
        return await self._desk.delete(call.path["group"], wish)
