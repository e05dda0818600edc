"""Creates deliverers from the settings of delivering actions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import cast

from broker_core.names import Group, Topic
from proxy.delivery.deliverer import Deliverer
from proxy.delivery.trust import trust_of
from proxy.errors import SettingsError
from proxy.net.secrets import read_secrets
from proxy.settings.delivery import DeliverySettings
from proxy.settings.groups import GroupSettings
from proxy.settings.proxy_settings import Settings
from proxy.settings.sinks.registry import SINKS


def make_deliverer(
    group: Group, topic: Topic, settings: DeliverySettings, *, secrets: Mapping[str, bytes]
) -> Deliverer:
    """Return the deliverer of *topic* for *group*; *secrets* by name."""
    sink = SINKS.get(settings.kind)
    if sink is None:
        raise TypeError(f"{group} {topic}: no deliverer for an action {settings.kind}")
    return cast("Deliverer", import_module(sink.module).make(settings, secrets))


def undeliverable(
    groups: Iterable[GroupSettings], *, secrets: Mapping[str, bytes]
) -> Iterator[str]:
    """Yield one sentence for each topic of *groups* whose deliverer this process cannot create."""
    for group in groups:
        for topic in group.topics:
            if (settings := topic.delivery) is None:
                continue
            try:
                settings.check_secrets(secrets)
                trust_of(settings)
            except ValueError as error:
                yield f"group {group.name}, topic {topic.name}: its {settings.kind}: {error}"


def secrets_of(settings: Settings) -> dict[str, bytes]:
    """Return the secrets of *settings*. Raises SettingsError if one is missing or unsuitable."""
    secrets = read_secrets(settings.secrets)
    if problems := list(undeliverable(settings.groups, secrets=secrets)):
        raise SettingsError("\n".join(problems))
    return secrets
