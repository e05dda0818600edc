"""What can go wrong between a thin client and a proxy. Ask ``retriable``, never for the class."""

from __future__ import annotations


class ClientError(Exception):
    """Base of the errors below. ``retriable`` says whether trying again may help;
    ``leaves_connection`` whether its connection can still be used.
    """

    retriable = False
    leaves_connection = False


class ConnectionLost(ClientError):
    """The connection could not be made, or ended before the answer came. Effect unknown.

    ``broke``: it stood, and ended suddenly; another one to the same proxy may do.
    """

    retriable = True

    def __init__(self, message: str, *, broke: bool = False) -> None:
        self.broke = broke
        super().__init__(message)


class ProxyFault(ClientError):
    """The proxy answered that it failed, or does not know the method."""

    def __init__(self, message: str, *, retriable: bool) -> None:
        self.retriable = retriable
        super().__init__(message)


class ProtocolError(ClientError):
    """The answer is not what the contract says: another kind of server, or a bug."""


class Refused(ClientError):
    """The proxy refused the request; *code* as in PullException: 400, 404, or 500 and above."""

    leaves_connection = True

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.retriable = code >= 500
        super().__init__(message)


class SendFailed(ClientError):
    """A message, or a part of a batch, was not stored, or it is unknown whether it was.

    ``failures`` has why, by message id, for each message of the call that is not known to be
    stored; all others are. ``message_id`` is the first of them: sent again under its id, a consumer
    can tell that it is the same. ``code`` is the proxy's (see ``Result`` in producer_proxy.thrift),
    None if no proxy answered; ``outcome_unknown`` is True if some may be stored nevertheless.
    """

    def __init__(
        self, text: str, *, code: int | None, failures: dict[str, str], outcome_unknown: bool
    ) -> None:
        self.code = code
        self.failures = failures
        self.message_id = next(iter(failures))
        self.outcome_unknown = outcome_unknown
        super().__init__(text)
