"""Verbs on whole groups in the admin API, such as pause."""

from __future__ import annotations

from functools import partial
from typing import Any

from proxy.admin.operations import OWNED, Call, Operation, post
from proxy.operator.asked import ChangeBody
from proxy.operator.key_desk import KeyDesk
from proxy.operator.key_table import GROUP_VERBS, KeyVerb, OfGroup


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
