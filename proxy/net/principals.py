"""Authentication by token, JWT or client certificate, and authorization by access rules. No I/O.

The settings hold only hashes of tokens. The project generates tokens that are long and random, so a
plain SHA-256 cannot be reversed; a slow hash would only help an attacker who floods the port.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from broker_core.clock import wall_ms
from proxy.core.access.rights import Access, allowed, too_large
from proxy.core.limits.quotas import Quotas
from proxy.settings.access import TokenSettings
from proxy.settings.proxy_settings import Settings

#: Cached verdicts, counted in names: a client repeats the same requests.
_KEPT_NAMES = 16_384


class Identity(NamedTuple):
    """A caller: its principal, or None and the reason, which follows "token that"."""

    principal: str | None
    reason: str = ""


def quotas_of(settings: Settings, known: Iterable[str]) -> Quotas:
    """Return the quotas of *settings*; *known* are principals with metrics of their own."""
    quotas = settings.quotas
    named = {each.name: each.quota for each in quotas.principals}
    mapped = () if settings.jwt is None else settings.jwt.principals
    return Quotas(quotas.default.quota, named, {*known, *(each.principal for each in mapped)})


class SignedTokens(Protocol):
    """Tokens of an identity provider."""

    def identify(self, token: str) -> Identity | None:
        """Return the caller; None if *token* has another form."""


class Principals:
    """The principals of *settings*. False if there are none: authentication is disabled and
    everything is allowed. *jwt*: the tokens of an identity provider.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        jwt: SignedTokens | None = None,
        wall_clock_ms: Callable[[], int] = wall_ms,
    ) -> None:
        self._tokens = [(bytes.fromhex(each.sha256), each) for each in settings.tokens]
        self._certificates = {each.common_name: each.name for each in settings.certificates}
        self._rules = [each.rule for each in settings.access]
        self._jwt = jwt
        self._wall_ms = wall_clock_ms
        self._allowed: dict[tuple[str, Access], bool] = {}
        self._names = 0  # names in the cached verdicts

    def __bool__(self) -> bool:
        return bool(self._tokens or self._certificates or self._jwt is not None)

    @property
    def have_rules(self) -> bool:
        """Whether access rules limit any principal."""
        return bool(self._rules)

    @property
    def remembered(self) -> Collection[tuple[str, Access]]:
        """Principals and acts whose verdicts are cached."""
        return self._allowed.keys()

    @property
    def names(self) -> set[str]:
        """Principals that the settings name."""
        return {each.owner for _, each in self._tokens} | set(self._certificates.values())

    def of(self, token: str | None, certificate: str | None) -> str | None:
        """Return the principal like ``identify``; None if it is unknown."""
        return self.identify(token, certificate).principal

    def identify(self, token: str | None, certificate: str | None) -> Identity:
        """Return the caller with *token* or, without a token, with a certificate of that common
        name.
        """
        if token is None:
            return Identity(None if certificate is None else self._certificates.get(certificate))
        given = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        # Compare with all hashes, each in constant time, so that the duration reveals nothing.
        found = [each for known, each in self._tokens if hmac.compare_digest(given, known)]
        if found:
            return self._identity(found[0])
        signed = None if self._jwt is None else self._jwt.identify(token)
        return signed or Identity(None, "is unknown: see the proxy's setting tokens")

    def _identity(self, token: TokenSettings) -> Identity:
        if token.expires is None or self._wall_ms() < token.expires.timestamp() * 1000:
            return Identity(token.owner)
        # In its own zone, as in the settings: in another one it may be outside of the calendar.
        at = token.expires.isoformat(timespec="seconds")
        return Identity(None, f"expired at {at} ({token.name!r}): use its successor")

    def expiries_s(self) -> dict[str, float]:
        """Return the seconds until each token with an end expires, by the token's name; negative
        afterwards.
        """
        now = datetime.fromtimestamp(self._wall_ms() / 1000, UTC)
        return {
            each.name: (each.expires - now).total_seconds()
            for _, each in self._tokens
            if each.expires is not None
        }

    def may(self, principal: str, act: Access) -> bool:
        """Return whether a rule allows *principal* to do *act*. An act that is too large is never
        allowed.
        """
        found = self._allowed.get((principal, act))
        if found is None:
            if too_large(act):
                return False
            names = 2 + len(act.topics)
            if self._names + names > _KEPT_NAMES:
                self._allowed.clear()
                self._names = 0
            self._names += names
            found = self._allowed[principal, act] = allowed(principal, act, self._rules)
        return found
