"""What operators see of keys: lists of those that matter, and all of one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from proxy.admin.operations import LOOKS, Call, Operation, get
from proxy.operator.asked import PLAIN_KEY, Answer, Asked
from proxy.operator.key_board import KeyBoard
from proxy.operator.key_models import KeyRow

_PLACE = "/api/groups/{group}/topics/{topic}/keys"
MOST_SHOWN = 1000

Limit = Annotated[int, Field(description=f"a number from 1 to {MOST_SHOWN:,}", ge=1, le=MOST_SHOWN)]


#: A request's first line has room for so much of a key.
ShortKey = Annotated[
    str,
    Field(description="the order key, a text of up to 500 characters", max_length=500),
    PLAIN_KEY,
]


class KeysQuery(Asked):
    """How many."""

    limit: Limit = 20


class KeyQuery(Asked):
    """Which key."""

    key: ShortKey


class KeyHistoryQuery(Asked):
    """Which key, and how much of it."""

    key: ShortKey
    limit: Limit = 100


class ListedKey(KeyRow):
    """As a single one. ``share``: of what was handed out lately, in lists of hot keys."""

    share: float | None = None
    not_copied: int | None = None  # type: ignore[assignment]
    redriven_by: str | None = None  # type: ignore[assignment]


class KeyEventView(Answer):
    """What happened to a key; ``at_ms`` is milliseconds since 1970."""

    at_ms: int
    queue: str | None
    what: str
    offset: int | None
    attempt: int | None
    detail: str
    by: str | None


class KeyViewSurface:
    """``GET …/keys/top``, ``hot``, ``blocked``, ``paused``, ``show``, ``history``."""

    def __init__(self, board: KeyBoard) -> None:
        self._board = board

    def operations(self) -> list[Operation]:
        """What it serves."""
        board = self._board
        return [
            self._list("top", board.top, "Keys with most unfinished messages."),
            self._list("hot", board.hot, "Keys with most hand-outs in the last minute or two."),
            self._list("blocked", board.blocked, "Keys that wait for their first message."),
            self._list("paused", board.paused, "Paused keys."),
            get(
                f"{_PLACE}/show",
                "One key, in all queues that this proxy owns.",
                self._show,
                query=KeyQuery,
                answer=list[KeyRow],
                errors=LOOKS,
            ),
            get(
                f"{_PLACE}/history",
                "What happened to a key lately.",
                self._history,
                query=KeyHistoryQuery,
                answer=list[KeyEventView],
                errors=LOOKS,
            ),
        ]

    def _list(
        self,
        name: str,
        rows: Callable[[str, str, int], Awaitable[list[dict[str, Any]]]],
        summary: str,
    ) -> Operation:
        return get(
            f"{_PLACE}/{name}",
            f"{summary} Of the queues that this proxy owns.",
            partial(self._rows, rows),
            query=KeysQuery,
            answer=list[ListedKey],
            errors=LOOKS,
        )

    async def _rows(self, rows: Any, call: Call) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await rows(
            call.path["group"], call.path["topic"], call.query.limit
        )
        return found

    async def _show(self, call: Call) -> list[dict[str, Any]]:
        return await self._board.show(call.path["group"], call.path["topic"], call.query.key)

    async def _history(self, call: Call) -> list[dict[str, Any]]:
        asked: KeyHistoryQuery = call.query
        return await self._board.history(
            call.path["group"], call.path["topic"], asked.key, asked.limit
        )
