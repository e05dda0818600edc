"""Secrets, and values bound to the hosts that may receive them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from proxy.core.delivery.push_url import AllowedHosts, PushUrl

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Secret:
    """One secret of a proxy. ``hosts`` None: not bound, so only groups of the settings file may use
    it, for the targets that they list themselves; empty: it is never sent.
    """

    value: bytes = field(repr=False)
    hosts: AllowedHosts | None = None


@dataclass(frozen=True, slots=True)
class Bound(Generic[Value]):
    """A value for the targets that all of ``hosts`` allow; without any, for every target."""

    value: Value = field(repr=False)
    hosts: tuple[AllowedHosts, ...] = ()

    def at(self, target: PushUrl) -> Value | None:
        """Return the value if *target* may receive it, else None."""
        return self.value if all(hosts.allow(target) for hosts in self.hosts) else None
