"""Errors between a thin client and a proxy. Decide by ``retriable``, never by the class."""

from __future__ import annotations


class ClientError(Exception):
    """Base of the client's errors. ``retriable``: a retry may succeed; ``leaves_connection``: the
    connection is still usable.
    """

    retriable = False
    leaves_connection = False


class ConnectionLost(ClientError):
    """Connecting failed, or the connection ended before the answer; the effect is unknown.

    ``broke``: an open connection ended; a new one to the same proxy may succeed.
    """

    retriable = True

    def __init__(self, message: str, *, broke: bool = False) -> None:
        self.broke = broke
        super().__init__(message)


class ProxyFault(ClientError):
    """The proxy reported an internal failure or, with ``unknown_method``, that it has no such
    method and did nothing.
    """

    def __init__(self, message: str, *, retriable: bool, unknown_method: bool = False) -> None:
        self.retriable = retriable
        self.unknown_method = unknown_method
        super().__init__(message)


class ProtocolError(ClientError):
    """The answer violates the protocol: the server is not an orderlane proxy, or has a bug."""


class Refused(ClientError):
    """The proxy refused the request; *code* is PullException's: 400, 404, or 500 and above."""

    leaves_connection = True

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.retriable = code >= 500
        super().__init__(message)


class SendFailed(ClientError):
    """One or more messages were not stored, or may not have been.

    ``failures`` maps the ID of each message that is not known to be stored to the reason; the
    call's other messages are stored. ``message_id`` is the first of these IDs: send the message
    again under its ID, so that consumers recognize a duplicate. ``code`` is the proxy's (see
    ``Result`` in producer_proxy.thrift), None if no proxy answered. ``outcome_unknown`` is True if
    some of the messages may have been stored.
    """

    def __init__(
        self, text: str, *, code: int | None, failures: dict[str, str], outcome_unknown: bool
    ) -> None:
        self.code = code
        self.failures = failures
        self.message_id = next(iter(failures))
        self.outcome_unknown = outcome_unknown
        super().__init__(text)
