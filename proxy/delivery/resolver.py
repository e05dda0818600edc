"""Resolves receivers' names to addresses that their group may use.

The check follows the resolution, and connections are made to the returned addresses only, so that a
name cannot change its meaning in between.
"""

from __future__ import annotations

import asyncio
import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from proxy.core.delivery.receiver_address import ReceiverAddresses


class AddressRefused(OSError):
    """A receiver has no address that its group may use; the text is one sentence."""

    def __init__(self, reason: str) -> None:
        super().__init__(None, reason)
        self.reason = reason


class CheckedResolver(AbstractResolver):
    """Resolves by the system and leaves out addresses that *rules* refuse."""

    def __init__(self, rules: ReceiverAddresses) -> None:
        self._rules = rules

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the allowed addresses of *host*.

        Raises OSError if there is none at all, and AddressRefused if none is allowed.
        """
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                host, port, type=socket.SOCK_STREAM, family=family, flags=socket.AI_ADDRCONFIG
            )
        except UnicodeError:  # an empty or too long label
            raise OSError(None, f"{host[:80]} is no name of a host") from None
        allowed: list[ResolveResult] = []
        problem = f"{host} has no address"
        for kind, _, protocol, _, where in found:
            address = str(where[0])
            if (refused := self._rules.problem(host, address)) is not None:
                problem = refused
                continue
            allowed.append(
                ResolveResult(
                    hostname=host,
                    host=address,
                    port=port,
                    family=kind,
                    proto=protocol,
                    flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
                )
            )
        if not allowed:
            raise AddressRefused(problem)
        return allowed

    async def close(self) -> None:
        """Do nothing: the system's resolver has no state here."""


async def allowed_addresses(host: str, port: int, rules: ReceiverAddresses) -> list[str]:
    """Return the allowed addresses of *host*, at least one. Raises like
    ``CheckedResolver.resolve``.
    """
    return [each["host"] for each in await CheckedResolver(rules).resolve(host, port)]
