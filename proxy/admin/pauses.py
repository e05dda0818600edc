"""Pausing whole groups: nothing of them is handed out until they are resumed."""

from __future__ import annotations

from functools import partial
from typing import Any

from proxy.admin.keys import PauseView
from proxy.admin.operations import OWNED, Call, Operation, post
from proxy.operator.asked import ChangeBody
from proxy.operator.key_desk import KeyDesk


class PauseSurface:
    """``POST /api/groups/G/pause`` and ``resume``."""

    def __init__(self, desk: KeyDesk) -> None:
        self._desk = desk

    def operations(self) -> list[Operation]:
        """What it serves."""
        return [
            self._verb("pause", self._desk.pause, "Hand nothing of a group out, in any queue."),
            self._verb("resume", self._desk.resume, "Hand a paused group out again."),
        ]

    def _verb(self, verb: str, do: Any, summary: str) -> Operation:
        return post(
            f"/api/groups/{{group}}/{verb}",
            summary,
            partial(self._act, do),
            body=ChangeBody,
            answer=PauseView,
            errors=OWNED,
        )

    async def _act(self, do: Any, call: Call) -> dict[str, Any]:
        group = call.path["group"]
        done: dict[str, Any] = await do(group, None, None, **call.why)
        return done
