"""Creates deliverers from the settings of delivering actions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from ipaddress import ip_network
from typing import cast

from broker_core.names import Group, Topic
from proxy.core.delivery.receiver_access import ReceiverAccess
from proxy.delivery.deliverer import Deliverer
from proxy.delivery.trust import trust_of
from proxy.errors import SettingsError
from proxy.net.secrets import read_secrets
from proxy.settings.delivery import DeliverySettings
from proxy.settings.groups import GroupSettings
from proxy.settings.proxy_settings import Settings
from proxy.settings.sinks.registry import SINKS


def make_deliverer(
    group: Group, topic: Topic, settings: DeliverySettings, *, access: ReceiverAccess
) -> Deliverer:
    """Return the deliverer of *topic* for *group*, whose receivers have *access*."""
    sink = SINKS.get(settings.kind)
    if sink is None:
        raise TypeError(f"{group} {topic}: no deliverer for an action {settings.kind}")
    return cast("Deliverer", import_module(sink.module).make(settings, access))


def undeliverable(groups: Iterable[GroupSettings], access: ReceiverAccess) -> Iterator[str]:
    """Yield one sentence for each topic of *groups* whose deliverer this process cannot create."""
    for group in groups:
        for topic in group.topics:
            if (settings := topic.delivery) is None:
                continue
            try:
                settings.check_access(access)
                trust_of(settings)
            except ValueError as error:
                yield f"group {group.name}, topic {topic.name}: its {settings.kind}: {error}"


def access_of(settings: Settings) -> ReceiverAccess:
    """Return the access of the receivers of groups in the settings file.

    Raises SettingsError if a secret is missing or unsuitable, or a receiver is not allowed.
    """
    access = ReceiverAccess(
        secrets=read_secrets(settings.secrets),
        networks=tuple(map(ip_network, settings.receiver_networks)),
    )
    if problems := list(undeliverable(settings.groups, access)):
        raise SettingsError("\n".join(problems))
    return access
