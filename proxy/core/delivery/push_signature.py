"""The signature of a pushed message, by which its receiver knows where it comes from. Pure.

``Orderlane-Signature: t=SECONDS,v1=HEX``: SECONDS since 1970, and HMAC-SHA256 with the shared
secret over ``SECONDS.MESSAGE-ID.CONTENT``. MESSAGE-ID is what stands in ``Orderlane-Message-Id``,
CONTENT the body; of a GET, which has none, the text behind the URL's question mark. One ``v1`` for
each secret, so that a secret can be changed without a pause.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

SIGNATURE_HEADER = "Orderlane-Signature"


def signature(secrets: Iterable[bytes], *, at_s: int, message_id: str, content: bytes) -> str:
    """The header's value at the time *at_s*; *message_id* as its own header has it."""
    signed = f"{at_s}.{message_id}.".encode() + content
    sums = (hmac.new(secret, signed, hashlib.sha256).hexdigest() for secret in secrets)
    return ",".join([f"t={at_s}", *(f"v1={each}" for each in sums)])
