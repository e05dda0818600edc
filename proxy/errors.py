"""Errors of the proxy. A new one needs a caller that handles it differently."""

from __future__ import annotations


class OrderlaneError(Exception):
    """Base of errors for people: one sentence that says what is wrong, where, and what is right."""


class SettingsError(OrderlaneError):
    """An invalid settings file, environment variable or option."""


class JobStateError(Exception):
    """An invalid transition in a job's life cycle: a bug in the proxy, never a client's error."""


class UnknownName(OrderlaneError):
    """An unknown group or topic; the message lists the known ones."""


class NotOfGroup(UnknownName):
    """A topic that the group does not have; it may exist."""


class Refused(OrderlaneError):
    """A valid request that is not supported or not allowed here; the message says why."""


class NotAllowed(OrderlaneError):
    """A request without a valid token."""


class Forbidden(NotAllowed):
    """A request that the principal's access rules do not allow."""


class WrongState(OrderlaneError):
    """A request that is impossible in the current state; the message describes the state.

    *passing*: the state ends by itself in a moment, as a hand-over does; the request changed
    nothing and may be repeated.
    """

    def __init__(self, sentence: str, *, passing: bool = False) -> None:
        super().__init__(sentence)
        self.passing = passing


class Unavailable(OrderlaneError):
    """A required service does not answer; nothing was changed and the request may be retried."""


class Overloaded(OrderlaneError):
    """A request over *limit*, a setting; it may be retried later."""

    def __init__(self, limit: str, sentence: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(sentence)
        self.limit = limit
        self.retry_after_s = retry_after_s


class OwnedElsewhere(OrderlaneError):
    """A request for queues of other proxies; *addresses* are their HTTP addresses."""

    def __init__(self, sentence: str, *, addresses: tuple[str, ...]) -> None:
        super().__init__(sentence)
        self.addresses = addresses
