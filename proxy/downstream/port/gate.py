"""Authentication and authorization in front of every method: tokens, certificates and access rules.
No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from broker_core.clock import now_ns
from proxy.core.access.rights import Access, too_large
from proxy.core.limits.quotas import Quotas
from proxy.downstream.port.connection import Authenticate, Connection, Entry, Method, Refuse, Reply
from proxy.downstream.port.credentials import TokenReader
from proxy.downstream.port.frames import Call
from proxy.downstream.port.interpretation import (
    Interpretation,
    TopicsOf,
    interpret,
    interpretation_of,
)
from proxy.downstream.port.requests import refusal
from proxy.errors import (
    Forbidden,
    NotAllowed,
    OrderlaneError,
    Overloaded,
    Refused,
    Unavailable,
)
from proxy.net.principals import Principals
from proxy.net.refusal_log import RefusalLog

#: Topics named in a refusal.
_SHOWN_TOPICS = 5


def refuse_by(result: Callable[..., Any]) -> Refuse:
    """Return the refusal of a method whose generated *result* can hold a PullException."""
    return lambda _arguments, reply, error: reply(result(error=refusal(error)))


class Gate:
    """Authorizes calls by *principals*, and charges them to *quotas*; allows all calls if there are
    none.

    *topics_of*: the topics for requests that name only a group. *asked_as*: the group whose rules
    apply; leases of a broadcast group's client have their own group.
    """

    def __init__(
        self,
        principals: Principals,
        *,
        topics_of: TopicsOf,
        asked_as: Callable[[str], str] = str,
        quotas: Quotas | None = None,
        refusals: RefusalLog | None = None,
    ) -> None:
        self._principals = principals
        self._topics_of = topics_of
        self._asked_as = asked_as
        self._quotas = quotas or Quotas()
        self._refusals = refusals or RefusalLog()
        self.refused = 0

    def guarded(self, entries: Mapping[str, Entry]) -> dict[str, Entry]:
        """Return the same methods behind the check; each has its own refusal."""
        if not (self._principals or self._quotas):
            return dict(entries)
        return {
            name: replace(
                entry,
                method=self._guarded(name, entry),
                shed=self._guarded_shed(name, entry),
                authenticate=self._authenticating(name, entry) if self._principals else None,
            )
            for name, entry in entries.items()
        }

    def _guarded_shed(self, name: str, entry: Entry) -> Refuse | None:
        """Return the shed handler behind the check: a shed request's verdicts are applied."""
        shed = entry.shed
        if shed is None:
            return None

        def answer(arguments: Any, reply: Reply, error: OrderlaneError) -> None:
            def method(arguments: Any, reply: Reply) -> None:
                shed(arguments, reply, error)

            if arguments is None:  # there was no memory for them
                method(arguments, reply)
            else:
                self._guarded(name, replace(entry, method=method))(arguments, reply)

        return answer

    def _authenticating(self, name: str, entry: Entry) -> Authenticate:
        """Return the check of the tokens alone, for a call that is not decoded yet."""
        reader = TokenReader(entry.arguments)

        def authenticate(call: Call, connection: Connection) -> None:
            try:
                for token in reader.tokens(call):
                    self._principal_of(name, token or None, connection.certificate_name)
            except NotAllowed as error:
                self._count(connection, name, error)
                raise

        return authenticate

    def _guarded(self, name: str, entry: Entry) -> Method:
        def method(arguments: Any, reply: Reply) -> None:
            try:
                self._admit(name, arguments, reply, frees=entry.frees)
            except NotAllowed as error:
                self._count(reply.connection, name, error, reply.principal)
                entry.refuse(arguments, reply, error)
            except Overloaded as error:
                client = reply.connection.address
                reply.connection.server.noisy.warning(
                    f"{error.limit} {reply.principal or client}",
                    "request refused",
                    client=client,
                    principal=reply.principal,
                    reached=error.limit,
                )
                (entry.shed or entry.refuse)(arguments, reply, error)
            except (Refused, Unavailable) as error:
                entry.refuse(arguments, reply, error)
            else:
                reply.metered(entry.method, arguments, reply)

        return method

    def _admit(self, name: str, arguments: Any, reply: Reply, *, frees: bool) -> None:
        """Authenticate, interpret and authorize a call, then charge it, in this order.

        A call that *frees*, so one that settles or extends, is served above every rate, or leases
        would end in the middle of their handlers, and handled messages would be delivered again.
        Its connection does not count either: a client has one for this, because a waiting pull
        occupies the other.

        The service serves the same interpretation. Raises NotAllowed, Refused, and Overloaded above
        a quota: the caller may settle then, so the verdicts of a pull are still applied.
        """
        if self._principals:
            try:
                who = self._authenticated(name, arguments, reply.connection.certificate_name)
            except NotAllowed:
                self._charge(reply, arguments, None, frees=False)
                raise
            reply.identify(who[0])
            if self._principals.have_rules:
                meaning = interpretation_of(reply, arguments).with_granted(self._topics_of)
                reply.interpret_as(meaning)
                self._authorize(name, who, meaning)
        self._charge(reply, arguments, reply.principal, frees=frees)

    def _charge(self, reply: Reply, arguments: Any, principal: str | None, *, frees: bool) -> None:
        """Charge a call to its principal, or without one to its address. Raises Overloaded."""
        if not self._quotas:
            return
        now, connection = now_ns(), reply.connection
        if principal is None:
            account = self._quotas.of_address(connection.address, now)
            caller = f"address {connection.address}"
        else:
            account, caller = self._quotas.of_principal(principal, now), principal
        over = None
        if frees:
            account.serve(now)
        else:
            over = connection.count_for(account) or account.admit(now)
        if over is None and account.counts_names:
            meaning = interpretation_of(reply, arguments)
            reply.interpret_as(meaning)
            # Leases of a client of a broadcast group have a group that the caller did not choose.
            groups = set(map(self._asked_as, meaning.groups()))
            over = account.admit_names("groups", groups, now) or account.admit_names(
                "topics", meaning.all_topics(self._topics_of), now
            )
        if over is not None:
            raise Overloaded(over.limit, over.sentence(caller), retry_after_s=over.retry_after_s)
        # Afterwards, so that a request larger than the reserve is not refused for ever.
        reply.charge_to(account)

    def check(self, method: str, arguments: Any, *, certificate: str | None = None) -> None:
        """Raise NotAllowed or Forbidden unless the call is allowed, Refused if it is invalid.

        NotAllowed: a request in a generated ``*_args`` lacks a valid token, and *certificate* is
        not the common name of a principal. Forbidden: the principal's rules do not allow it.
        """
        who = self._authenticated(method, arguments, certificate)
        if self._principals.have_rules:
            meaning = interpret(method, arguments).with_granted(self._topics_of)
            self._authorize(method, who, meaning)

    def may(self, principal: str | None, act: Access) -> bool:
        """Return whether the rules allow *principal* to do *act*; always without rules."""
        if not self._principals.have_rules:
            return True
        if principal is None or too_large(act):
            return False
        return self._principals.may(principal, self._as_asked(act))

    def _authenticated(self, method: str, arguments: Any, certificate: str | None) -> list[str]:
        """Return the principal of each request in *arguments*: of a batch, of each message."""
        known: dict[str | None, str] = {}
        found = []
        for request in list(_requests(arguments)) or [None]:
            token = getattr(request, "token", None) or None
            principal = known.get(token)
            if principal is None:
                principal = known[token] = self._principal_of(method, token, certificate)
            found.append(principal)
        return found

    def _principal_of(self, method: str, token: str | None, certificate: str | None) -> str:
        principal, reason = self._principals.identify(token, certificate)
        if principal is None and token is None:
            raise NotAllowed(f"{method} requires a token: set the client's option token")
        if principal is None:
            raise NotAllowed(f"{method} has an invalid token: it {reason}")
        return principal

    def _authorize(self, method: str, who: list[str], meaning: Interpretation) -> None:
        for act in meaning.accesses():
            self._check_access(method, who[0], act)
        if meaning.sends:
            # An absent argument counts as a request without a token: there may be more callers.
            asked = dict.fromkeys(zip(who, meaning.sends, strict=False))
            for principal, topic in asked:
                if not topic:
                    continue  # no right concerns it: the service refuses the whole request
                self._check_access(method, principal, Access(meaning.right, None, (topic,)))

    def _as_asked(self, act: Access) -> Access:
        return act if act.group is None else replace(act, group=self._asked_as(act.group))

    def _check_access(self, method: str, principal: str, act: Access) -> None:
        if why := too_large(act):
            raise Forbidden(f"{method} {why}")
        act = self._as_asked(act)
        if not self._principals.may(principal, act):
            raise Forbidden(
                f"{principal} may not {act.right} {_what(act)}: see this proxy's setting access"
            )

    def _count(
        self, connection: Connection, name: str, error: NotAllowed, principal: str | None = None
    ) -> None:
        self.refused += 1
        self._refusals.note(
            client=connection.address,
            principal=principal or "",
            port="thrift",
            what=name,
            why=str(error),
        )


def _requests(arguments: Any) -> Iterable[Any]:
    for name in arguments.__slots__:
        value = getattr(arguments, name)
        for request in value if isinstance(value, list) else [value]:
            if request is None or hasattr(request, "token"):
                yield request


def _what(act: Access) -> str:
    shown = [repr(topic) for topic in act.topics[:_SHOWN_TOPICS]]
    if len(act.topics) > _SHOWN_TOPICS:
        shown.append(f"{len(act.topics) - _SHOWN_TOPICS} more topics")
    topics = ", ".join(shown) or "all topics"
    return topics if act.group is None else f"{topics} of the group {act.group!r}"
