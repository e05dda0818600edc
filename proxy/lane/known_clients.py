"""The clients of broadcast groups that brokers keep data about, as known to this proxy.

Each costs topics and offsets at the brokers. A consumer that changes its clientId would make them
grow without end; so those absent longest are forgotten early when there are more than
``max_clients``, and a new one is refused when there are twice as many.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from broker_core.names import Group
from proxy.errors import Refused

#: A new client is refused at that many times ``max_clients``.
_REFUSED_AT = 2
#: The brokers are asked after that part of ``max_clients`` has come.
_ASK_AFTER = 4


@dataclass(slots=True)
class _Clients:
    known: set[Group] = field(default_factory=set)
    new: set[Group] = field(default_factory=set)  # since the brokers were asked


class KnownClients:
    """Clients by broadcast group. ``on_many`` is called when the brokers should be asked."""

    def __init__(self) -> None:
        self._clients: defaultdict[Group, _Clients] = defaultdict(_Clients)
        self._on_many: Callable[[], None] = lambda: None

    def call_on_many(self, on_many: Callable[[], None]) -> None:
        """Call *on_many* when many clients have come since the last ``learn``."""
        self._on_many = on_many

    def admit(self, group: Group, client: Group, *, most: int, forgets: bool = True) -> None:
        """Note a client of *group* that begins; raise Refused if there are too many. *forgets*:
        absent clients are forgotten in time.
        """
        clients = self._clients[group]
        if client in clients.known or client in clients.new:
            return
        count = len(clients.known) + len(clients.new)
        if count >= _REFUSED_AT * most:
            self._on_many()
            remark = "clients that have been away longest are being forgotten"
            if not forgets:
                remark = "none is forgotten, because forget_after_s is null"
            raise Refused(
                f"group {group!r} has {count} clients at the brokers, and max_clients is {most}:"
                f" give each client a lasting clientId, or raise max_clients; {remark}"
            )
        clients.new.add(client)
        if len(clients.new) * _ASK_AFTER >= most:
            self._on_many()

    def learn(self, group: Group, clients: Iterable[Group]) -> None:
        """Note the *clients* of *group* that the brokers know, and those being served here."""
        self._clients[group] = _Clients(set(clients))

    def forget(self, group: Group, client: Group) -> None:
        """Note that the brokers know *client* no longer."""
        self._clients[group].known.discard(client)
