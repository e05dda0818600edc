"""Signed requests: the sender, proved by a secret that both sides know. Pure.

The header gets ``AccessKey`` and ``Signature``: HMAC-SHA1, as base64, over the values of all header
fields in the order of their names, without the signature, followed by the body. It hides nothing,
and an intercepted request can be replayed: use TLS or a private network against both. Source:
``AclClientRPCHook``, ``AclUtils`` and ``AclSigner`` of 4.9.7, the same in 5.3.3.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
#: Set by Java's client after signing.
_NOT_SIGNED = frozenset({SIGNATURE, "_UNIQUE_KEY_QUERY"})


@dataclass(frozen=True, slots=True)
class Credentials:
    """An account's name and its secret, which is never shown."""

    access_key: str
    secret: str = field(repr=False)

    def signed(self, ext: Mapping[str, str], body: bytes | memoryview) -> dict[str, str]:
        """Return the header fields with the account and the signature."""
        named = {**ext, ACCESS_KEY: self.access_key}
        return {**named, SIGNATURE: signature_of(named, body, secret=self.secret)}


def signature_of(ext: Mapping[str, str], body: bytes | memoryview, *, secret: str) -> str:
    """Return the valid signature of a request."""
    values = (value for name, value in sorted(ext.items()) if name not in _NOT_SIGNED)
    content = "".join(values).encode("utf-8", "surrogatepass")
    mac = hmac.new(secret.encode(), content, hashlib.sha1)
    mac.update(body)
    return base64.b64encode(mac.digest()).decode()


def is_signed(ext: Mapping[str, str], body: bytes | memoryview, *, secret: str) -> bool:
    """Return whether the signature is valid, in constant time."""
    claimed = ext.get(SIGNATURE, "").encode("utf-8", "surrogatepass")
    return hmac.compare_digest(signature_of(ext, body, secret=secret).encode(), claimed)
