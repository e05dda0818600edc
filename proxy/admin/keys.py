"""Verbs on keys and groups in the admin API: pause, resume, skip, retry, park, redrive."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

from pydantic import Field

from proxy.admin.operations import LOOKS, NDJSON, OWNED, Call, Operation, Pieces, get, post
from proxy.operator.key_desk import KeyDesk, ParkedWish
from proxy.operator.key_models import RedriveAllBody
from proxy.operator.key_table import GROUP_VERBS, KEY_VERBS, KeyVerb, OfGroup, Reach
from proxy.operator.request_models import Answer, ChangeBody, Listed, RequestModel

_PLACE = "/api/groups/{group}/topics/{topic}/keys"
MOST_PARKED = 10_000


class RedrivenQueue(Answer):
    """Keys of a queue that are being redriven, and the number of their copies."""

    queue: str
    keys: list[str]
    copies: int


class RedriveAllView(Answer):
    """Keys being redriven in this proxy's queues.

    ``owners``: addresses of proxies that own other queues; ``elsewhere``: these queues;
    ``unowned``: queues without an owner; ``unaddressed``: queues whose owners publish no address.
    """

    group: str
    topic: str
    queues: list[RedrivenQueue]
    owners: list[str]
    elsewhere: list[str]
    unowned: list[str]
    unaddressed: list[str]


class ParkedKeyView(Answer):
    """A parked key of a queue; ``copies`` counts its messages in the parked topic, ``not_copied``
    those that are not there yet; null: unknown, as the queue has no owner.
    """

    key: str
    topic: str
    queue: str
    state: str
    copies: int | None
    not_copied: int | None
    by: str
    reason: str
    note: str
    redriven_by: str


class ParkedQuery(RequestModel):
    """Selects parked keys."""

    reason: Annotated[str, Field(description="a part of the reason", max_length=500)] = ""
    after: Annotated[
        str,
        Field(
            description="the queue and key of the last row of an earlier page, such as"
            " broker-a_0@customer-17",
            max_length=1_000,
        ),
    ] = ""
    limit: Annotated[
        int, Field(description=f"a number from 1 to {MOST_PARKED:,}", ge=1, le=MOST_PARKED)
    ] = MOST_PARKED


class ParkedExportQuery(RequestModel):
    """Selects parked keys to export."""

    reason: Annotated[str, Field(description="a part of the reason", max_length=500)] = ""


class KeySurface:
    """``GET …/keys/parked`` and ``…/keys/parked/export``; ``POST …/keys/VERB`` with the key in the
    body.
    """

    def __init__(self, desk: KeyDesk) -> None:
        self._desk = desk

    def operations(self) -> list[Operation]:
        """Return the operations."""
        parked = get(
            f"{_PLACE}/parked",
            "List parked keys in the queues owned by this proxy or by none.",
            self._parked,
            query=ParkedQuery,
            answer=list[ParkedKeyView],
            errors=LOOKS,
            partly=True,
        )
        export = get(
            f"{_PLACE}/parked/export",
            "Export parked keys in the queues owned by this proxy or by none as lines of JSON.",
            self._export,
            query=ParkedExportQuery,
            media=NDJSON,
            errors=LOOKS,
        )
        redrive_all = post(
            f"{_PLACE}/redrive-all",
            "Redrive all parked keys, each in order.",
            self._redrive_all,
            body=RedriveAllBody,
            answer=RedriveAllView,
            errors=OWNED,
        )
        return [
            parked,
            export,
            redrive_all,
            *map(self._verb, KEY_VERBS),
        ]

    def _verb(self, verb: KeyVerb) -> Operation:
        do = self._everywhere if verb.reach is Reach.ALL else self._act
        return post(
            f"{_PLACE}/{verb.name}",
            verb.summary,
            partial(do, verb),
            body=verb.body,
            answer=verb.answer,
            errors=OWNED,
        )

    async def _parked(self, call: Call) -> Listed:
        asked: ParkedQuery = call.query
        wish = ParkedWish(limit=asked.limit, reason=asked.reason, after=asked.after)
        return await self._desk.parked(call.path["group"], call.path["topic"], wish)

    async def _export(self, call: Call) -> Pieces:
        wish = ParkedWish(reason=call.query.reason)
        return self._desk.export_parked(call.path["group"], call.path["topic"], wish)

    async def _act(self, verb: KeyVerb, call: Call) -> dict[str, Any]:
        group, topic = call.path["group"], call.path["topic"]
        return await self._desk.act(verb, group, topic, call.body, by=call.by)

    async def _everywhere(self, verb: KeyVerb, call: Call) -> dict[str, Any]:
        group, topic = call.path["group"], call.path["topic"]
        key = call.body.key
        return await self._desk.everywhere(verb, group, topic, key, call.body, by=call.by)

    async def _redrive_all(self, call: Call) -> dict[str, Any]:
        asked = call.body.model_dump(exclude={"by", "reason"})
        return await self._desk.redrive_all(
            call.path["group"], call.path["topic"], by=call.by, reason=call.body.reason, **asked
        )


class GroupVerbSurface:
    """``POST /api/groups/G/VERB``."""

    def __init__(self, desk: KeyDesk) -> None:
        self._desk = desk

    def operations(self) -> list[Operation]:
        """Return the operations."""
        return [self._verb(verb, form) for verb, form in GROUP_VERBS]

    def _verb(self, verb: KeyVerb, form: OfGroup) -> Operation:
        return post(
            f"/api/groups/{{group}}/{verb.name}",
            form.summary,
            partial(self._act, verb),
            body=ChangeBody,
            answer=verb.answer,
            errors=OWNED,
        )

    async def _act(self, verb: KeyVerb, call: Call) -> dict[str, Any]:
        group = call.path["group"]
        return await self._desk.everywhere(verb, group, None, None, call.body, by=call.by)
