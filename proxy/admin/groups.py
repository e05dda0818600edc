"""Groups in the nameservers' store: look at one, store it, delete it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from proxy.admin.checking import Malformed
from proxy.admin.operations import LOOKS, Call, Operation, get
from proxy.errors import SettingsError
from proxy.live.group_desk import GroupDesk, Wish
from proxy.operator.asked import Actor, Answer, Asked, ChangeBody, Reason

_PLACE = "/api/groups/{group}"
_CHANGES = (404, 409, 503)


def _integral(value: object) -> object:
    """JSON has one kind of numbers: 2.0 is a version, too."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_Version = Annotated[int, Field(ge=0, lt=2**53), BeforeValidator(_integral)]
Expect = Annotated[
    _Version | None,
    Field(description="the version that the group has, 0 if there is none; without it any"),
]
DryRun = Annotated[bool, Field(description="true or false: only tell, change nothing")]


class GroupBody(ChangeBody):
    """Settings of a group, as in a settings file, without its name."""

    settings: Annotated[
        dict[str, Any], Field(description="an object with the settings of the group")
    ]
    expect: Expect = None
    dry_run: DryRun = False


class DeleteQuery(Asked):
    """Why, and from which version on."""

    reason: Reason
    by: Actor = None
    expect: Expect = None
    dry_run: DryRun = False


class StoredGroupView(Answer):
    """``version``: that of the store, 0 if it is not there. ``refused``: why the settings in the
    store are not served.
    """

    group: str
    source: str
    version: int
    settings: dict[str, Any] | None
    refused: str | None


class GroupChangeView(Answer):
    """``version`` is the one after it; without a change the one that is."""

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
        """What it serves."""
        return [
            get(
                _PLACE,
                "Where a group comes from, and its settings.",
                self._describe,
                answer=StoredGroupView,
                errors=LOOKS,
            ),
            Operation(
                method="PUT",
                path=_PLACE,
                summary="Store a group, new or known: all proxies that read the store serve it.",
                handle=self._put,
                body=GroupBody,
                answer=GroupChangeView,
                errors=_CHANGES,
            ),
            Operation(
                method="DELETE",
                path=_PLACE,
                summary="Delete a group from the store: its queues are handed over.",
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
