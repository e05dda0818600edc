"""Views of keys in the admin API: lists, and one key in detail."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from proxy.admin.operations import LOOKS, Call, Operation, get
from proxy.operator.key_board import KeyBoard
from proxy.operator.key_models import KeyRow
from proxy.operator.request_models import PLAIN_KEY, Answer, Listed, RequestModel

_PLACE = "/api/groups/{group}/topics/{topic}/keys"
MOST_SHOWN = 1000
_OWNED = "in the queues owned by this proxy"

Limit = Annotated[int, Field(description=f"a number from 1 to {MOST_SHOWN:,}", ge=1, le=MOST_SHOWN)]


#: A key in a query string, limited by the length of the request line.
ShortKey = Annotated[
    str,
    Field(description="the order key, at most 500 characters", max_length=500),
    PLAIN_KEY,
]


class KeysQuery(RequestModel):
    """Limits a list of keys."""

    limit: Limit = 20


class KeyQuery(RequestModel):
    """Selects a key."""

    key: ShortKey


class KeyHistoryQuery(RequestModel):
    """Selects a key, and limits its events."""

    key: ShortKey
    limit: Limit = 100


class ListedKey(KeyRow):
    """A key in a list. ``share``: its fraction of recent deliveries, in lists of hot keys."""

    share: float | None = None
    not_copied: int | None = None
    redriven_by: str | None = None  # type: ignore[assignment]


class KeyEventView(Answer):
    """An event in a key's history; ``at_ms`` is milliseconds since 1970."""

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
        """Return the operations."""
        board = self._board
        return [
            self._list("top", board.top, f"the keys with the most unfinished messages {_OWNED}"),
            self._list("hot", board.hot, f"the keys with most recent deliveries {_OWNED}"),
            self._list("blocked", board.blocked, f"keys blocked by their first message {_OWNED}"),
            self._list("paused", board.paused, f"paused keys {_OWNED} or by none", partly=True),
            get(
                f"{_PLACE}/show",
                "Show one key, in all queues owned by this proxy or by none.",
                self._show,
                query=KeyQuery,
                answer=list[KeyRow],
                errors=LOOKS,
                partly=True,
            ),
            get(
                f"{_PLACE}/history",
                "List recent events of a key.",
                self._history,
                query=KeyHistoryQuery,
                answer=list[KeyEventView],
                errors=LOOKS,
                partly=True,
            ),
        ]

    def _list(
        self,
        name: str,
        rows: Callable[[str, str, int], Awaitable[list[dict[str, Any]] | Listed]],
        what: str,
        *,
        partly: bool = False,
    ) -> Operation:
        return get(
            f"{_PLACE}/{name}",
            f"List {what}.",
            partial(self._rows, rows),
            query=KeysQuery,
            answer=list[ListedKey],
            errors=LOOKS,
            partly=partly,
        )

    async def _rows(self, rows: Any, call: Call) -> list[dict[str, Any]] | Listed:
        found: list[dict[str, Any]] | Listed = await rows(
            call.path["group"], call.path["topic"], call.query.limit
        )
        return found

    async def _show(self, call: Call) -> Listed:
        return await self._board.show(call.path["group"], call.path["topic"], call.query.key)

    async def _history(self, call: Call) -> Listed:
        asked: KeyHistoryQuery = call.query
        return await self._board.history(
            call.path["group"], call.path["topic"], asked.key, asked.limit
        )
