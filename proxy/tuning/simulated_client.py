"""A simulated thin client: the real session, its handlers, and its requests. Pure.

``thin_client.session`` decides as in a real client when pulls and verdicts are sent and which
message a handler gets; only handlers, connections and the clock are simulated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from proxy.core.leases.lease_book import Holder
from thin_client.lease import Home, Lease
from thin_client.session import Session
from thin_client.session_options import SessionOptions
from thrift_idl import consumer

_NEVER = 1 << 62
_VERSION = "simulated"
_NOTHING = consumer.AckAnswer(notHeld=[])

#: Qid and lease ids of acked messages.
Acked = tuple[str, Sequence[int]]


class ProxyLink(Protocol):
    """Takes the requests of clients to the proxy, and their timers. Times are ns."""

    @property
    def now_ns(self) -> int:
        """The virtual time."""

    def pull(self, client: SimulatedClient, most: int, acked: Iterable[Acked]) -> None:
        """Send a pull for at most *most* messages; its answer calls ``client.pulled``."""

    def settle(self, client: SimulatedClient, home: Home, acked: Iterable[Acked]) -> None:
        """Send verdicts, if any; the answer calls ``client.settled``."""

    def wake_at(self, at_ns: int, client: SimulatedClient) -> None:
        """Call ``client.turn`` at *at_ns*."""

    def handle(self, client: SimulatedClient, lease: Lease) -> None:
        """Give *lease* to a handler; its end calls ``client.handled``."""


class SimulatedClient:
    """One client with *concurrency* handlers and room for *prefetch* waiting messages."""

    __slots__ = ("_link", "_session", "_wakes_ns", "holder")

    def __init__(self, number: int, *, concurrency: int, prefetch: int, link: ProxyLink) -> None:
        self.holder = Holder(number, f"simulated-{number}")
        self._session = Session(
            SessionOptions(
                group="simulated",
                topics=None,
                client_id=f"simulated-{number}",
                version=_VERSION,
                concurrency=concurrency,
                prefetch=prefetch,
            )
        )
        self._link = link
        self._wakes_ns = _NEVER

    def turn(self) -> None:
        """Send the requests that are due, and wake up for the next one."""
        session, link = self._session, self._link
        now_ns = link.now_ns
        session.calm()
        if self._wakes_ns <= now_ns:
            self._wakes_ns = _NEVER
        next_ns = session.pull_at()
        if next_ns is not None and next_ns <= now_ns:
            request = session.begin_pull(now_ns)
            link.pull(self, request.maxBatchSize or 0, _acked(request.acks))
            next_ns = None
        for home in session.homes.values():
            at_ns = session.control_at(home)
            if at_ns is not None and at_ns <= now_ns:
                control = session.begin_control(home, now_ns)
                if control is not None:
                    acks = getattr(control, "acks", None)  # an extend has none
                    link.settle(self, home, _acked(acks))
                    continue
                at_ns = session.control_at(home)
            if at_ns is not None and (next_ns is None or at_ns < next_ns):
                next_ns = at_ns
        if next_ns is not None and next_ns < self._wakes_ns:
            self._wakes_ns = next_ns
            link.wake_at(next_ns, self)

    def pulled(self, response: consumer.PullResponse) -> None:
        """Take the answer to the pull."""
        self._session.pull_answered(response, self._link.now_ns)
        self._give_to_handlers()
        self.turn()

    def settled(self, home: Home) -> None:
        """Take the answer to a settle or extend."""
        self._session.control_answered(home, _NOTHING, self._link.now_ns)
        self.turn()

    def handled(self, lease: Lease) -> None:
        """End the handler of *lease* with an ack."""
        session = self._session
        session.settle(lease, None, self._link.now_ns)
        if session.stirred:
            self.turn()
        self._give_to_handlers()
        if session.stirred:
            self.turn()

    def _give_to_handlers(self) -> None:
        take, now_ns = self._session.take, self._link.now_ns
        while (lease := take(now_ns)) is not None:
            self._link.handle(self, lease)  # type: ignore[arg-type]  # all messages are leases


def _acked(batches: Sequence[consumer.AckBatch] | None) -> list[Acked]:
    return [(each.context.qid or "", each.acked or ()) for each in batches or () if each.context]
