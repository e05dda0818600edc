"""Rights of a group's receivers: secrets that they get, addresses that they may have. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from proxy.core.delivery.push_url import AllowedHosts, PushUrl
from proxy.core.delivery.receiver_address import Network, ReceiverAddresses, plain_host
from proxy.core.delivery.secret import Bound, Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverAccess:
    """Permissions of a group's receivers in the settings of a proxy.

    Args:
        secrets: All secrets of the proxy, by name.
        networks: Networks allowed to receivers in addition to public addresses.
        from_file: Whether the group comes from the settings file, whose author may list any host.
    """

    secrets: Mapping[str, Secret] = field(default_factory=dict)
    networks: tuple[Network, ...] = ()
    from_file: bool = True

    def bound(self, name: str, targets: Iterable[PushUrl]) -> Bound[bytes]:
        """Return the secret *name*, bound to its hosts or else to *targets*.

        Raises ValueError with one sentence if the secret does not exist, or if one of *targets*,
        the listed ones, must not get it.
        """
        secret = self.secrets.get(name)
        if secret is None:
            raise ValueError(f"names {name!r}, which is not among the proxy's secrets")
        targets = list(targets)
        if secret.hosts is None:
            if not self.from_file:
                raise ValueError(
                    f"names {name!r}, a secret that is not bound to hosts: a stored group can use"
                    f" it only if its hosts list {', '.join(map(_at, targets)) or 'its receivers'}"
                )
            return Bound(secret.value, (hosts_of(targets),))
        for target in targets:
            if not secret.hosts.allow(target):
                raise ValueError(
                    f"names {name!r}, a secret whose hosts do not list {_at(target)}, so it is not"
                    " sent there"
                )
        return Bound(secret.value, (secret.hosts,))

    def addresses(self, listed: Iterable[str]) -> ReceiverAddresses:
        """Return the rules for the addresses of receivers; *listed*: hosts in the group's settings.

        Raises ValueError with one sentence if one of them is an address that is not allowed.
        """
        hosts = frozenset(map(plain_host, listed))
        rules = ReceiverAddresses(self.networks, hosts if self.from_file else frozenset())
        for host in sorted(hosts):
            if problem := rules.literal_problem(host):
                raise ValueError(problem)
        return rules


def hosts_of(targets: Iterable[PushUrl]) -> AllowedHosts:
    """Return the hosts and ports of *targets*."""
    return AllowedHosts(frozenset(f"{target.host}:{target.port}" for target in targets))


def _at(target: PushUrl) -> str:
    return target.host if target.default_port else f"{target.host}:{target.port}"
