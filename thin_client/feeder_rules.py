"""Decisions and reports shared by both feeders: addresses, and results of requests. No I/O."""

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
    """Return the addresses at which to reach the proxy of *home*, the most likely first.

    Behind a forwarded port the proxy's own address may be unreachable; the address of the pull then
    works. Other proxies are never tried: they do not have the leases.
    """
    if home.address is None:
        return [pulled_from]
    try:
        return [servers.at(parse_address(home.address)), pulled_from]
    except ValueError:
        return [pulled_from]


def added_and_removed(session: Session, known: Collection[Home]) -> tuple[list[Home], list[Home]]:
    """Return the session's proxies that are not *known*, and *known* ones no longer in it."""
    wanted = dict.fromkeys(session.homes.values())  # a set would lose the order
    return (
        [home for home in wanted if home not in known],
        [home for home in known if home not in wanted],
    )


class Reports:
    """Reports the results of requests to the observer and the log."""

    def __init__(self, observer: Observer, *, group: str) -> None:
        """*group*: the consumer's group, for the log."""
        self._observer = observer
        self._group = group

    def connecting(self, address: object, *, failures: int) -> None:
        """Report a connection that is about to be opened after *failures* failed pulls in a row."""
        if failures and is_news(failures):
            _log.info("group %s: reconnecting to %s", self._group, address)

    def connected(self, address: object) -> None:
        """Report an open connection for pulls."""
        _log.info("group %s: connected to %s", self._group, address)

    def pulled(self, messages: int) -> None:
        """Report an answered pull."""
        self._observer.on_pulled(messages)

    def pull_failed(self, error: ClientError, *, failures: int) -> None:
        """Report a failed pull, the last of *failures* in a row."""
        self._observer.on_error(error)
        if error.retriable and is_news(failures):
            _log.warning("group %s: pull failed, retrying: %s", self._group, error)

    def control_answered(
        self,
        request: consumer.AckRequest | consumer.ExtendRequest,
        answer: consumer.AckAnswer,
        *,
        settled: int,
        lost: Iterable[Message],
    ) -> None:
        """Report an answered settle of *settled* verdicts, or extend, and lost leases."""
        if isinstance(request, consumer.AckRequest):
            self._observer.on_settled(settled, len(answer.notHeld or ()))
        self.lost(lost)

    def control_failed(self, home: Home, error: ClientError, lost: Iterable[Message]) -> None:
        """Report a failed settle or extend at *home*, and lost leases."""
        if is_news(home.failures):
            _log.warning("group %s: settling or extending failed, retrying: %s", self._group, error)
        self._observer.on_error(error)
        self.lost(lost)

    def lost(self, messages: Iterable[Message]) -> None:
        """Report lost leases of *messages*, which are with handlers."""
        for message in messages:
            self._observer.on_lease_lost(message)
