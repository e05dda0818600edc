"""Verbs on a group that is removed while they ask the brokers, as a client of a broadcast group is.

Uses real upstream components and in-memory brokers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker_core.names import QueueName
from proxy.errors import UnknownName
from proxy.operator.hand_over_desk import HandoffDesk, QueueWish
from proxy.operator.key_desk import KeyDesk
from proxy.operator.key_table import PAUSE
from proxy.operator.offset_desk import OffsetDesk, SkipWish
from proxy.operator.request_models import ChangeBody
from proxy.upstream.ownership.group_ownership import GroupOwnership
from proxy.upstream.ownership.owner_book import OwnerBook
from proxy.upstream.ownership.ownerships import Ownerships
from testkit.lanes import TOPIC
from tests.integration.upstream.upstreams import BILLING, Upstream, one_queue, upstream


class Desks:
    """Desks of a group that is removed while they look for its queues."""

    def __init__(self, us: Upstream) -> None:
        free = SimpleNamespace(parkings=lambda *_: (), is_broadcast=False, consumes=lambda _: True)
        self._ownerships = Ownerships({BILLING: cast(GroupOwnership, free)})
        self._book = OwnerBook(us.client, us.context.log)
        lanes: Any = SimpleNamespace(named=lambda _: us.lane)
        book: Any = SimpleNamespace(
            queue=self._removed(self._book.queue),
            queues_of=self._removed(self._book.queues_of),
            rows=self._book.rows,
        )
        self.keys = KeyDesk(us.context, self._ownerships, book)
        self.offsets = OffsetDesk(us.context, lanes, self._ownerships, book)
        self.owners = HandoffDesk(us.context, lanes, self._ownerships, book)

    def _removed(self, ask: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def asked(*about: Any) -> Any:
            self._ownerships.clear()
            return await ask(*about)

        return asked


Verb = Callable[[Desks, QueueName], Awaitable[Any]]
VERBS: dict[str, Verb] = {
    "key": lambda desks, _: desks.keys.everywhere(
        PAUSE, BILLING, TOPIC, "k", ChangeBody(reason="why"), by="ann"
    ),
    "skip": lambda desks, at: desks.offsets.skip(BILLING, TOPIC, at.qid, SkipWish("ann", "why", 1)),
    "expect": lambda desks, at: desks.owners.expect(
        QueueWish(BILLING, TOPIC, at.qid, "ann", "why")
    ),
}


@pytest.mark.parametrize("verb", VERBS.values(), ids=VERBS)
async def test_the_error_says_that_the_group_was_removed(verb: Verb) -> None:
    brokers, queue = one_queue()
    async with upstream(brokers) as us:
        with pytest.raises(UnknownName, match="there is no group 'billing' here any more"):
            await verb(Desks(us), queue)
