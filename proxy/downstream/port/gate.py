"""Who may call: tokens, certificates and rules in front of every method. No I/O."""

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
    """How a method refuses whose generated *result* can hold a PullException."""
    return lambda _arguments, reply, error: reply(result(error=refusal(error)))


class Gate:
    """Lets calls pass of whoever *principals* know and let; all of them if they know nobody.

    *topics_of*: what a request is about that names a group and no topic. *asked_as*: the group that
    rules are about; leases of a broadcast group's client name a group of its own.
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
        """The same methods behind the gate; each refuses in its own way."""
        if not self._principals:
            return dict(entries)
        return {
            name: replace(
                entry, method=self._guarded(name, entry), shed=self._guarded_shed(name, entry)
            )
            for name, entry in entries.items()
        }

    def _guarded_shed(self, name: str, entry: Entry) -> Refuse | None:
        """Whoever is shed may have brought verdicts, which are applied: they pass the gate too."""
        shed = entry.shed
        if shed is None:
            return None

        def answer(arguments: Any, reply: Reply, error: OrderlaneError) -> None:
            def method(arguments: Any, reply: Reply) -> None:
                shed(arguments, reply, error)

            if arguments is None:  # there was no room for them
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
        """Raises NotAllowed unless each request in a generated ``*_args`` carries a valid token, or
        *certificate* is the common name of somebody who is known; Forbidden unless that one may.
        """
        for request in list(_requests(arguments)) or [None]:
            token = getattr(request, "token", None) or None
            principal = self._principals.of(token, certificate)
            if principal is None and token is None:
                raise NotAllowed(
                    f"{method} came without a token, and this proxy asks for one: set the client's"
                    " option token"
                )
            if principal is None:
                raise NotAllowed(
                    f"{method} came with a token that this proxy does not know: see its setting"
                    " tokens"
                )
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
