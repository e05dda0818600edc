"""Authentication and authorization in front of every method: tokens, certificates and access rules.
No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from proxy.core.access.rights import Access, too_large
from proxy.downstream.port.call_rights import TopicsOf, acts_of
from proxy.downstream.port.connection import Entry, Method, Refuse, Reply
from proxy.downstream.port.requests import refusal
from proxy.errors import Forbidden, NotAllowed, OrderlaneError
from proxy.net.principals import Principals


def refuse_by(result: Callable[..., Any]) -> Refuse:
    """Return the refusal of a method whose generated *result* can hold a PullException."""
    return lambda _arguments, reply, error: reply(result(error=refusal(error)))


class Gate:
    """Authorizes calls by *principals*; allows all calls if there are none.

    *topics_of*: the topics for requests that name only a group. *asked_as*: the group whose rules
    apply; leases of a broadcast group's client have their own group.
    """

    def __init__(
        self,
        principals: Principals,
        *,
        topics_of: TopicsOf,
        asked_as: Callable[[str], str] = str,
    ) -> None:
        self._principals = principals
        self._topics_of = topics_of
        self._asked_as = asked_as
        self.refused = 0

    def guarded(self, entries: Mapping[str, Entry]) -> dict[str, Entry]:
        """Return the same methods behind the check; each has its own refusal."""
        if not self._principals:
            return dict(entries)
        return {
            name: replace(
                entry, method=self._guarded(name, entry), shed=self._guarded_shed(name, entry)
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

    def _guarded(self, name: str, entry: Entry) -> Method:
        def method(arguments: Any, reply: Reply) -> None:
            try:
                self.check(name, arguments, certificate=reply.connection.certificate_name)
            except NotAllowed as error:
                self.refused += 1
                client = reply.connection.address
                reply.connection.server.noisy.warning(
                    f"token {client}", "call refused", client=client, reason=str(error)
                )
                entry.refuse(arguments, reply, error)
            else:
                entry.method(arguments, reply)

        return method

    def check(self, method: str, arguments: Any, *, certificate: str | None = None) -> None:
        """Raise NotAllowed or Forbidden unless the call is allowed.

        NotAllowed: a request in a generated ``*_args`` lacks a valid token, and *certificate* is
        not the common name of a principal. Forbidden: the principal's rules do not allow it.
        """
        for request in list(_requests(arguments)) or [None]:
            token = getattr(request, "token", None) or None
            principal = self._principals.of(token, certificate)
            if principal is None and token is None:
                raise NotAllowed(f"{method} requires a token: set the client's option token")
            if principal is None:
                raise NotAllowed(f"{method} has an invalid token: see the proxy's setting tokens")
            if request is not None and self._principals.have_rules:
                self._check_acts(method, principal, request)

    def _check_acts(self, method: str, principal: str, request: Any) -> None:
        for act in acts_of(method, request, self._topics_of):
            if why := too_large(act):
                raise Forbidden(f"{method} {why}")
            if act.group is not None:
                act = replace(act, group=self._asked_as(act.group))
            if not self._principals.may(principal, act):
                raise Forbidden(
                    f"{principal} may not {act.right} {_what(act)}: see this proxy's setting access"
                )


def _what(act: Access) -> str:
    topics = ", ".join(act.topics) or "all topics"
    return topics if act.group is None else f"{topics} of the group {act.group}"


def _requests(arguments: Any) -> Iterable[Any]:
    for name in arguments.__slots__:
        value = getattr(arguments, name)
        for request in value if isinstance(value, list) else [value]:
            if request is None or hasattr(request, "token"):
                yield request
