"""Authentication by token or client certificate, and authorization by the access rules. No I/O.

The settings hold only hashes of tokens. The project generates tokens that are long and random, so a
plain SHA-256 cannot be reversed; a slow hash would only help an attacker who floods the port.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection

from proxy.core.access.rights import Access, allowed, too_large
from proxy.settings.proxy_settings import Settings

#: Cached verdicts, counted in names: a client repeats the same requests.
_KEPT_NAMES = 16_384


class Principals:
    """The principals of *settings*. False if there are none: authentication is disabled and
    everything is allowed.
    """

    def __init__(self, settings: Settings) -> None:
        self._tokens = [(bytes.fromhex(each.sha256), each.owner) for each in settings.tokens]
        self._certificates = {each.common_name: each.name for each in settings.certificates}
        self._rules = [each.rule for each in settings.access]
        self._allowed: dict[tuple[str, Access], bool] = {}
        self._names = 0  # names in the cached verdicts

    def __bool__(self) -> bool:
        return bool(self._tokens or self._certificates)

    @property
    def have_rules(self) -> bool:
        """Whether access rules limit any principal."""
        return bool(self._rules)

    @property
    def remembered(self) -> Collection[tuple[str, Access]]:
        """Principals and acts whose verdicts are cached."""
        return self._allowed.keys()

    def of(self, token: str | None, certificate: str | None) -> str | None:
        """Return the principal of *token* or, without a token, of the certificate with that common
        name; None if it is unknown.
        """
        if token is None:
            return None if certificate is None else self._certificates.get(certificate)
        given = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        # Compare with all hashes, each in constant time, so that the duration reveals nothing.
        found = [owner for known, owner in self._tokens if hmac.compare_digest(given, known)]
        return found[0] if found else None

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
