"""Errors of the proxy. Few on purpose: a new one needs a caller that handles it differently."""

from __future__ import annotations


class OrderlaneError(Exception):
    """Base of what a person may read: one sentence with what was wrong, where, what is right."""


class SettingsError(OrderlaneError):
    """A settings file, an environment variable or an option is wrong."""


class JobStateError(Exception):
    """A job was moved against its life cycle: a bug on our side, never a client's doing."""


class UnknownName(OrderlaneError):
    """A group or topic that does not exist here; the message names what does."""


class Refused(OrderlaneError):
    """A request that is understood and not served; the message says why."""


class NotAllowed(OrderlaneError):
    """A request of someone who has not shown a valid token."""


class Forbidden(NotAllowed):
    """A request of someone who is known, and may not do that."""


class WrongState(OrderlaneError):
    """What is asked cannot be done as things are now; the message says how they are."""


class Unavailable(OrderlaneError):
    """What it takes does not answer now, so nothing was changed; the same may be asked again."""


class Overloaded(OrderlaneError):
    """More is asked than *limit*, a setting, lets; the same may be asked again after a while."""

    def __init__(self, limit: str, sentence: str) -> None:
        super().__init__(sentence)
        self.limit = limit


class OwnedElsewhere(OrderlaneError):
    """Other proxies own what was asked for; *addresses* are those of their HTTP ports."""

    def __init__(self, sentence: str, *, addresses: tuple[str, ...]) -> None:
        super().__init__(sentence)
        self.addresses = addresses
