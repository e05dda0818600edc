"""The states of a producer's transaction, shared by both forms. No I/O, but it logs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum

from thin_client.delivery import Delivery

_log = logging.getLogger("orderlane")


class _State(Enum):
    NEW = "was not entered yet"
    RUNNING = "runs"
    ROLLED_BACK = "was rolled back"
    ENDED = "has ended"


class BaseTransaction:
    """Base of both transactions: which steps may follow each other.

    ``message_id`` is the id that consumers will see, and that a check gets: record it with the
    work.
    """

    def __init__(
        self, prepared: Delivery, *, ending: Callable[[Delivery, bool], Delivery], running: set[str]
    ) -> None:
        """*ending* returns the request that ends the transaction, by a commit if True. *running*
        contains the ids of transactions whose blocks run.
        """
        self._prepared = prepared
        self._ending = ending
        self._running = running
        self._state = _State.NEW
        self.message_id = prepared.message_ids[0]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.message_id} {self._state.value}>"

    def _enter(self) -> list[Delivery]:
        """Return the requests to begin with. Raises RuntimeError if it was entered before."""
        if self._state is not _State.NEW:
            raise RuntimeError(
                f"the transaction of message {self.message_id} {self._state.value}: call"
                " transaction() for each with block"
            )
        self._state = _State.RUNNING
        self._running.add(self.message_id)
        return [self._prepared]

    def _leave(self) -> None:
        """Record that the block has ended."""
        self._state = _State.ENDED
        self._running.discard(self.message_id)

    def _rollback(self) -> list[Delivery]:
        """Return the requests to roll back; none if it was rolled back before.

        Raises RuntimeError outside of the block.
        """
        if self._state is _State.ROLLED_BACK:
            return []
        if self._state is not _State.RUNNING:
            raise RuntimeError(
                f"the transaction of message {self.message_id} {self._state.value}: call rollback()"
                " inside its with block"
            )
        return [self._ending(self._prepared, False)]

    def _rolled_back(self) -> None:
        """Record that the roll-back is stored; the block may still run."""
        self._state = _State.ROLLED_BACK

    def _commit(self, error: BaseException | None) -> list[Delivery]:
        """Return the requests at the end of the block, which raised *error* or None."""
        if self._state is not _State.RUNNING:
            return []
        if error is None:
            return [self._ending(self._prepared, True)]
        _log.info(
            "the outcome of message %s is left to the check, since its block raised %r",
            self.message_id,
            error,
        )
        return []
