"""The tables of a broker that begins with a restored copy of a log. Pure.

The original may have got further than the copy. Its proxies, clients and readers then know offsets
that new messages will get again. So each topic begins another life, which continues the former one
up to the end of the copy: positions up to there stay valid, later ones do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker_core.broker.groups.offsets import CommittedOffsets
from broker_core.broker.topics.topics import Topics
from broker_core.errors import InvalidCommand, StoreError
from broker_core.names import Topic


def restored_table(
    name: str,
    content: dict[str, Any],
    end_offset: Callable[[Topic, int], int],
    *,
    now_ms: int,
) -> dict[str, Any]:
    """Return the table *name* for a broker that restores *content*.

    *end_offset* returns the next offset of a queue. Raises StoreError if *content* is not such a
    table.
    """
    try:
        if name == "topics":
            topics = Topics.from_table(content)
            topics.continue_lives(end_offset, now_ms=now_ms)
            return topics.to_table()
        if name == "consumerOffset":
            offsets = CommittedOffsets.from_table(content)
            offsets.clamp(end_offset)
            offsets.forget_epochs()  # they are offsets of ownership records that may be gone
            return offsets.to_table()
    except (ValueError, InvalidCommand) as error:
        raise StoreError(f"the backup's table {name} is invalid: {error}") from error
    return content
