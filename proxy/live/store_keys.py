"""Signatures of stored groups: HMAC-SHA256 with keys that the proxies of a cluster share. Pure.

A nameserver stores values for every client that reaches it, so a value counts only with a valid
signature. It covers namespace, group, version, settings, time and author: a value cannot be moved
to another group, and a deletion is signed like settings. The first key signs; all keys verify,
which allows rotation.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import replace

import orjson

from proxy.live.stored_group import NAMESPACE, StoredGroup

#: A key with fewer bytes could be guessed.
MIN_KEY_BYTES = 32
#: First bytes of the signed content: no other signature of orderlane begins with them.
_PURPOSE = b"orderlane stored group 1\0"


class StoreKeys:
    """The keys of one cluster, the signing one first."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """Raise ValueError for no key or a short one."""
        if not keys:
            raise ValueError("no key to sign stored groups with")
        for number, key in enumerate(keys, start=1):
            if len(key) < MIN_KEY_BYTES:
                raise ValueError(
                    f"key {number} has {len(key)} bytes: at least {MIN_KEY_BYTES} are needed, such"
                    " as the output of `openssl rand -hex 32`"
                )
        self._keys = {_id_of(key): key for key in reversed(keys)}
        self._first = _id_of(keys[0])

    def __repr__(self) -> str:
        return f"<StoreKeys {', '.join(self._keys)}>"

    def sign(self, group: str, value: StoredGroup) -> StoredGroup:
        """Return *value* with the signature of the first key."""
        signature = _signature(self._keys[self._first], group, value)
        return replace(value, key=self._first, signature=signature)

    def check(self, group: str, value: StoredGroup) -> None:
        """Raise ValueError with one sentence unless *value* is signed for *group*."""
        key = self._keys.get(value.key)
        if key is None:
            raise ValueError(
                f"it is signed with the key {value.key[:16]!r}, which is not among group_store_keys"
            )
        expected = _signature(key, group, value)
        if not hmac.compare_digest(expected.encode(), value.signature.encode()):
            raise ValueError("its signature is invalid: it was changed, or belongs elsewhere")

    def is_current(self, value: StoredGroup) -> bool:
        """Return whether the first key signed *value*, so that no rotation is pending."""
        return value.key == self._first


def _id_of(key: bytes) -> str:
    """Return the public name of *key*, which reveals nothing of it."""
    return hmac.new(key, b"orderlane key id", "sha256").hexdigest()[:16]


def _signature(key: bytes, group: str, value: StoredGroup) -> str:
    fields = [NAMESPACE, group, value.version, value.settings, value.written_ms, value.by]
    content = orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)
    return hmac.new(key, _PURPOSE + content, "sha256").hexdigest()
