"""What both feeders decide and report, without I/O: where to connect, what becomes of requests."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from thin_client.addresses import parse_address
from thin_client.backoff import is_news
from thin_client.errors import ClientError
from thin_client.lease import Home
from thin_client.message import Message
from thin_client.options import Observer
from thin_client.servers import Destination, Servers
from thin_client.session import Session
from thrift_idl import consumer

_log = logging.getLogger("orderlane")


def destinations(home: Home, servers: Servers, pulled_from: Destination) -> list[Destination]:
    """Where to reach the proxy that holds the leases of *home*, the likeliest first.

    Behind a forwarded port its own name for itself may lead nowhere; then its messages came from
    where it can be reached. Never another proxy: it would know nothing of the leases.
    """
    if home.address is None:
        return [pulled_from]
    try:
        return [servers.at(parse_address(home.address)), pulled_from]
    except ValueError:
        return [pulled_from]


def met_and_gone(session: Session, known: Collection[Home]) -> tuple[list[Home], list[Home]]:
    """Proxies that *session* names and are not *known*, and known ones that it names no more."""
    wanted = dict.fromkeys(session.homes.values())  # not a set, for their order
    return (
        [home for home in wanted if home not in known],
        [home for home in known if home not in wanted],
    )


class Reports:
    """Tells the observer and the log what became of requests."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def pulled(self, messages: int) -> None:
        """A pull was answered."""
        self._observer.on_pulled(messages)

    def pull_failed(self, error: ClientError, *, failures: int) -> None:
        """A pull failed, as *failures* in a row have."""
        self._observer.on_error(error)
        if error.retriable and is_news(failures):
            _log.warning("pull failed, trying again: %s", error)

    def control_answered(
        self,
        request: consumer.AckRequest | consumer.ExtendRequest,
        answer: consumer.AckAnswer,
        *,
        settled: int,
        lost: Iterable[Message],
    ) -> None:
        """A settle of *settled* verdicts or an extend was answered; the leases of *lost* are."""
        if isinstance(request, consumer.AckRequest):
            self._observer.on_settled(settled, len(answer.notHeld or ()))
        self.lost(lost)

    def control_failed(self, home: Home, error: ClientError, lost: Iterable[Message]) -> None:
        """A settle or an extend at *home* failed."""
        if is_news(home.failures):
            _log.warning("settling or extending failed, trying again: %s", error)
        self._observer.on_error(error)
        self.lost(lost)

    def lost(self, messages: Iterable[Message]) -> None:
        """The leases of *messages*, which are with handlers, are lost."""
        for message in messages:
            self._observer.on_lease_lost(message)
