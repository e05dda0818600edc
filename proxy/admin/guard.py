"""Authorization of HTTP requests, before every operation. No I/O.

On loopback every local user is allowed, but no page of another site in a user's browser, and only
under a local host name. On other addresses each request needs a token, whose principal needs the
right admin for the group and topic of the path. Probes and metrics need no token, under any host
name where the port is not on loopback: they name groups, but no messages.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence

from broker_core.clock import now_ns
from proxy.admin.operations import OPEN
from proxy.core.access.rights import ANY_GROUP, Access, Right, too_large
from proxy.core.limits.quotas import Quotas
from proxy.errors import Forbidden, NotAllowed, Overloaded
from proxy.net.principals import Principals
from proxy.net.refusal_log import RefusalLog

#: Sent with every response: no caching, framing, content sniffing or referrer.
SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Server": "orderlane",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def is_loopback(address: str) -> bool:
    """Return whether *address*, a host with or without a port, is local to this machine."""
    host = address.rpartition(":")[0] if ":" in address and not address.endswith("]") else address
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """Authorizes HTTP requests. *topics_of*: the topics of a group, for requests that name none."""

    def __init__(
        self,
        principals: Principals,
        *,
        loopback: bool,
        topics_of: Callable[[str], Sequence[str]] = lambda _group: (),
        quotas: Quotas | None = None,
        refusals: RefusalLog | None = None,
    ) -> None:
        self._quotas = quotas or Quotas()
        self._refusals = refusals or RefusalLog()
        self._principals = principals
        self._loopback = loopback
        self._topics_of = topics_of
        self.refused = 0

    def check(
        self,
        path: str,
        names: Mapping[str, str],
        headers: Mapping[str, str],
        *,
        certificate: str | None = None,
        client: str = "",
    ) -> str | None:
        """Return the principal of a request, None without authentication.

        *path* is the operation's path, *names* the values of its parameters, *client* an address.
        Raises NotAllowed or Forbidden, and Overloaded above a quota.
        """
        who = None
        try:
            who = self._identify(path, headers, certificate)
            self._authorize(who, names)
        except NotAllowed as error:
            self._refuse(client, who or "", path, error)
            self._charge(None, client)
            raise
        if who is not None:
            self._charge(who, client)
        return who

    def still_allows(
        self,
        path: str,
        names: Mapping[str, str],
        headers: Mapping[str, str],
        *,
        certificate: str | None = None,
    ) -> bool:
        """Return whether an answer that lasts may go on: its token may have expired meanwhile."""
        try:
            self._authorize(self._identify(path, headers, certificate), names)
        except NotAllowed:
            return False
        return True

    def spend(self, who: str | None, size_bytes: int) -> None:
        """Charge the bytes of an answer to the principal of its request."""
        if who is not None and self._quotas:
            self._quotas.of_principal(who, now_ns()).spend(size_bytes=size_bytes)

    def _charge(self, who: str | None, client: str) -> None:
        if not self._quotas:
            return
        now = now_ns()
        if who is None:
            account, caller = self._quotas.of_address(client, now), f"address {client}"
        else:
            account, caller = self._quotas.of_principal(who, now), who
        over = account.admit(now)
        if over is not None:
            raise Overloaded(over.limit, over.sentence(caller), retry_after_s=over.retry_after_s)

    def _refuse(self, client: str, who: str, what: str, error: NotAllowed) -> None:
        self.refused += 1
        self._refusals.note(client=client, principal=who, port="http", what=what, why=str(error))

    def check_topics(
        self,
        who: str | None,
        names: Mapping[str, str],
        asked: Sequence[str],
        *,
        client: str = "",
    ) -> None:
        """Raise Forbidden unless *who*, as returned by ``check``, has a right to the topics that a
        request concerns: *asked*, those in its query or body, or else all topics of its group.

        A topic in the path was checked before.
        """
        if who is None or "group" not in names or "topic" in names:
            return
        topics = asked or self._topics_of(names["group"])
        if not topics:
            return
        try:
            self._check_access(
                who, Access(Right.ADMIN, names["group"], tuple(topics)), ", ".join(topics[:10])
            )
        except NotAllowed as error:
            self._refuse(client, who, f"topics of {names['group']}", error)
            raise

    def _identify(
        self, path: str, headers: Mapping[str, str], certificate: str | None
    ) -> str | None:
        """Return the principal of a request, None without authentication. Raises NotAllowed."""
        if self._loopback:
            _refuse_other_names(headers.get("Host", ""))
        if path in OPEN:
            return None
        _refuse_other_sites(headers)
        if self._loopback:
            return None
        if not self._principals:
            raise NotAllowed(
                "this port is not on loopback, and no tokens are configured: add tokens to the"
                " proxy's settings"
            )
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        shown = token.strip() if scheme.lower() == "bearer" else None
        who, reason = self._principals.identify(shown or None, certificate)
        if who is None and shown and ("expired" in reason or "JWT" in reason):
            raise NotAllowed(f"the token {reason}")
        if who is None:
            raise NotAllowed(
                "missing or unknown token: send Authorization: Bearer TOKEN (the command orderlane"
                " takes it from ORDERLANE_ADMIN_TOKEN)"
            )
        return who

    def _authorize(self, who: str | None, names: Mapping[str, str]) -> None:
        """Raise Forbidden unless *who* has a right to the group and topic of the path."""
        if who is None:
            return
        topic = names.get("topic")
        act = Access(Right.ADMIN, names.get("group", ANY_GROUP), () if topic is None else (topic,))
        about = " ".join(f"{name} {value}" for name, value in names.items()) or "all groups"
        self._check_access(who, act, about)

    def _check_access(self, who: str, act: Access, about: str) -> None:
        if why := too_large(act):
            raise Forbidden(f"the request {why}")
        if not self._principals.may(who, act):
            raise Forbidden(f"{who} has no right admin for {about}: see the proxy's setting access")


def _refuse_other_sites(headers: Mapping[str, str]) -> None:
    """Refuse requests of other sites' pages. Browsers name the site, other programs do not."""
    site = headers.get("Sec-Fetch-Site", "none")
    origin = headers.get("Origin")
    host = headers.get("Host", "")
    ours = origin is None or origin.partition("://")[2] == host
    if site not in ("none", "same-origin") or not ours:
        raise Forbidden("request from a page of another site: this port serves its own pages only")


def _refuse_other_names(host: str) -> None:
    """Refuse other host names, which may lead here by DNS rebinding."""
    if host and not is_loopback(host):
        raise Forbidden(f"wrong host {host[:100]!r}: this port is on loopback, use 127.0.0.1")
