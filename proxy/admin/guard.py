"""Who may ask over HTTP: in front of every operation. No I/O.

On loopback whoever has an account on the machine may ask, as before; but no page of another site
that the same person's browser shows. Elsewhere each request shows a token, whose principal needs
the right admin for what the path names. Probes and metrics are open: they name groups, and nothing
of their messages.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from proxy.admin.operations import OPEN
from proxy.core.access.rights import ANY_GROUP, Act, Right, too_large
from proxy.errors import Forbidden, NotAllowed
from proxy.net.principals import Principals

#: Sent with every answer: nothing is kept, framed, guessed at, or told to another site.
SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Server": "orderlane",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def is_loopback(address: str) -> bool:
    """Whether what listens on *address*, a host with or without a port, can be reached from this
    machine alone.
    """
    host = address.rpartition(":")[0] if ":" in address and not address.endswith("]") else address
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """Lets requests pass of whoever *principals* know and let."""

    def __init__(self, principals: Principals, *, loopback: bool) -> None:
        self._principals = principals
        self._loopback = loopback
        self.refused = 0

    def check(
        self,
        path: str,
        names: Mapping[str, str],
        headers: Mapping[str, str],
        *,
        certificate: str | None = None,
    ) -> str | None:
        """Who asks, None where nobody has to say. *path* is the operation's, *names* what stands in
        its braces. Raises NotAllowed, or Forbidden.
        """
        try:
            return self._check(path, names, headers, certificate)
        except NotAllowed:
            self.refused += 1
            raise

    def _check(
        self,
        path: str,
        names: Mapping[str, str],
        headers: Mapping[str, str],
        certificate: str | None,
    ) -> str | None:
        if path in OPEN:
            return None
        _refuse_other_sites(headers)
        if self._loopback:
            _refuse_other_names(headers.get("Host", ""))
            return None
        if not self._principals:
            raise NotAllowed(
                "this port is not on loopback, and the proxy's settings have no tokens: nobody can"
                " show who asks; see its setting tokens"
            )
        scheme, _, token = headers.get("Authorization", "").partition(" ")
        shown = token.strip() if scheme.lower() == "bearer" else None
        who = self._principals.of(shown or None, certificate)
        if who is None:
            raise NotAllowed(
                "the request shows no token that this proxy knows: send Authorization: Bearer TOKEN"
                " (orderlane takes it from ORDERLANE_ADMIN_TOKEN)"
            )
        topic = names.get("topic")
        act = Act(Right.ADMIN, names.get("group", ANY_GROUP), () if topic is None else (topic,))
        if why := too_large(act):
            raise Forbidden(f"the request {why}")
        if not self._principals.may(who, act):
            about = " ".join(f"{name} {value}" for name, value in names.items()) or "all groups"
            raise Forbidden(f"{who} may not admin {about}: see this proxy's setting access")
        return who


def _refuse_other_sites(headers: Mapping[str, str]) -> None:
    """A browser says for which site it asks; other programs say nothing."""
    site = headers.get("Sec-Fetch-Site", "none")
    origin = headers.get("Origin")
    host = headers.get("Host", "")
    ours = origin is None or origin.partition("://")[2] == host
    if site not in ("none", "same-origin") or not ours:
        raise Forbidden("a page of another site asks: this port answers its own pages alone")


def _refuse_other_names(host: str) -> None:
    """Another site's name may lead to this machine (DNS rebinding): its pages are not ours."""
    if host and not is_loopback(host):
        raise Forbidden(f"this port is on loopback and not called {host[:100]!r}: ask 127.0.0.1")
