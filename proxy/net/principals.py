"""Who somebody is, by the token or the certificate that they show, and what they may do. No I/O.

The settings hold hashes of tokens alone. Tokens are made by us, long and random, so a plain SHA-256
cannot be turned round; a slow hash would only help those who flood the port.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection

from proxy.core.access.rights import Access, allowed, too_large
from proxy.settings.proxy_settings import Settings

#: Names in verdicts that are kept: a client asks the same again and again.
_KEPT_NAMES = 16_384


class Principals:
    """Those whom *settings* know; false if they know nobody, and let everybody do everything."""

    def __init__(self, settings: Settings) -> None:
        self._tokens = [(bytes.fromhex(each.sha256), each.owner) for each in settings.tokens]
        self._certificates = {each.common_name: each.name for each in settings.certificates}
        self._rules = [each.rule for each in settings.access]
        self._allowed: dict[tuple[str, Access], bool] = {}
        self._names = 0  # in those

    def __bool__(self) -> bool:
        return bool(self._tokens or self._certificates)

    @property
    def have_rules(self) -> bool:
        """Whether not all of them may do everything."""
        return bool(self._rules)

    @property
    def remembered(self) -> Collection[tuple[str, Access]]:
        """Who asked for which act, as far as the verdicts are kept."""
        return self._allowed.keys()

    def of(self, token: str | None, certificate: str | None) -> str | None:
        """Who shows *token*, or, without any, the certificate with that common name; None: nobody
        who is known.
        """
        if token is None:
            return None if certificate is None else self._certificates.get(certificate)
        given = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        # All are compared, each in constant time: the time taken says nothing.
        found = [owner for known, owner in self._tokens if hmac.compare_digest(given, known)]
        return found[0] if found else None

    def may(self, principal: str, act: Access) -> bool:
        """Whether a rule lets *principal* do *act*; never one that is too large."""
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
