"""Who may call: the token in front of every method. No I/O.

The settings hold hashes of tokens alone. Tokens are made by us, long and random, so a plain SHA-256
cannot be turned round; a slow hash would only help those who flood the port.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from proxy.downstream.requests import refusal
from proxy.downstream.thrift_server import Entry, Method, Refuse, Reply
from proxy.errors import NotAllowed
from proxy.settings import TokenSettings


def refuse_by(result: Callable[..., Any]) -> Refuse:
    """How a method refuses whose generated *result* can hold a PullException."""
    return lambda _arguments, reply, error: reply(result(error=refusal(error)))


class Gate:
    """Lets calls with one of *tokens* pass; all of them if there is none."""

    def __init__(self, tokens: Sequence[TokenSettings]) -> None:
        self._hashes = [bytes.fromhex(token.sha256) for token in tokens]
        self.refused = 0

    def guarded(self, entries: Mapping[str, Entry]) -> dict[str, Entry]:
        """The same methods behind the gate; each refuses in its own way."""
        if not self._hashes:
            return dict(entries)
        return {
            name: replace(entry, method=self._guarded(name, entry))
            for name, entry in entries.items()
        }

    def _guarded(self, name: str, entry: Entry) -> Method:
        def method(arguments: Any, reply: Reply) -> None:
            try:
                self.check(name, arguments)
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

    def check(self, method: str, arguments: Any) -> None:
        """Raises NotAllowed unless each request in a generated ``*_args`` carries a valid token."""
        tokens = set(_tokens(arguments)) or {None}
        if None in tokens:
            raise NotAllowed(
                f"{method} came without a token, and this proxy asks for one: set the client's"
                " option token"
            )
        if not all(self._is_known(token) for token in tokens if token is not None):
            raise NotAllowed(
                f"{method} came with a token that this proxy does not know: see its setting tokens"
            )

    def _is_known(self, token: str) -> bool:
        given = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        # All are compared, each in constant time: the time taken says nothing.
        return sum(hmac.compare_digest(given, known) for known in self._hashes) > 0


def _tokens(arguments: Any) -> Iterable[str | None]:
    for name in arguments.__slots__:
        value = getattr(arguments, name)
        for request in value if isinstance(value, list) else [value]:
            if request is None or hasattr(request, "token"):
                yield getattr(request, "token", None) or None
