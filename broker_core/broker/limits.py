"""Limits on the number of things that clients can make a broker keep.

The first one too many is refused with one sentence that names the setting; what exists is served as
before. A refusal is logged at most once a minute.
"""

from __future__ import annotations

import structlog

from broker_core.clock import now_ns
from broker_core.errors import BrokerError
from broker_core.remoting.codes import ResponseCode

_LOG_EVERY_NS = 60_000_000_000

_log = structlog.get_logger("broker")


class Limit:
    """The most things of one kind.

    Args:
        setting: its name in the settings.
        most: the number; None: no limit.
        advice: what a person can do, as an imperative.
    """

    def __init__(self, setting: str, most: int | None, *, advice: str) -> None:
        self.most = most
        self._setting = setting
        self._advice = advice
        self._logged_ns: int | None = None
        self._unlogged = 0
        #: Number of refusals.
        self.refused = 0

    def allows(self, number: int) -> bool:
        """Return whether there may be *number* of them."""
        return self.most is None or number <= self.most

    def room(self, held: int) -> int | None:
        """Return how many more there may be than *held*; None: any number."""
        return None if self.most is None else max(0, self.most - held)

    def check(self, number: int, *, refused: str, held: str) -> None:
        """Raise BrokerError if *number* would be too many.

        *refused* is the thing, *held* those there are: "topic 'a' is not created" and "this broker
        has 10 topics".
        """
        if self.allows(number):
            return
        raise self.refusal(refused=refused, held=held)

    def refusal(self, *, refused: str, held: str) -> BrokerError:
        """Return the error for one too many; count and log it."""
        self.refused += 1
        text = f"{refused}: {held}, its {self._setting}; {self._advice}, or raise it"
        now = now_ns()
        if self._logged_ns is None or now - self._logged_ns >= _LOG_EVERY_NS:
            more = {"more": self._unlogged} if self._unlogged else {}
            _log.warning("refused because of a limit", reason=text, **more)
            self._logged_ns, self._unlogged = now, 0
        else:
            self._unlogged += 1
        return BrokerError(ResponseCode.SYSTEM_ERROR, text)


#: For parts that are used without settings.
NO_LIMIT = Limit("", None, advice="")
