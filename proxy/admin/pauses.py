"""Pause and resume of whole groups in the admin API."""

from __future__ import annotations

from functools import partial
from typing import Any

from proxy.admin.operations import OWNED, Call, Operation, post
from proxy.operator.asked import ChangeBody
from proxy.operator.key_desk import KeyDesk
from proxy.operator.key_table import PAUSE, RESUME, KeyVerb


class PauseSurface:
    """``POST /api/groups/G/pause`` and ``resume``."""

    def __init__(self, desk: KeyDesk) -> None:
        self._desk = desk

    def operations(self) -> list[Operation]:
        """Return the operations."""
        return [
            self._verb(PAUSE, "Pause a group in all queues."),
            self._verb(RESUME, "Resume a paused group."),
        ]

    def _verb(self, verb: KeyVerb, summary: str) -> Operation:
        return post(
            f"/api/groups/{{group}}/{verb.name}",
            summary,
            partial(self._act, verb),
            body=ChangeBody,
            answer=verb.answer,
            errors=OWNED,
        )

    async def _act(self, verb: KeyVerb, call: Call) -> dict[str, Any]:
        group = call.path["group"]
        return await self._desk.everywhere(verb, group, None, None, call.body, by=call.by)
