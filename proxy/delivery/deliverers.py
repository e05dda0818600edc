"""From the settings of a delivering action to what delivers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ssl import SSLContext

from broker_core.names import Group, Topic
from proxy.delivery.deliverer import Deliverer
from proxy.delivery.http_push import HttpPush
from proxy.errors import SettingsError
from proxy.net.secrets import read_secrets
from proxy.net.tls import client_context
from proxy.settings.delivery import DeliverySettings
from proxy.settings.groups import GroupSettings
from proxy.settings.proxy_settings import Settings
from proxy.settings.push import PushSettings, answer_rules_of, push_rules_of
from proxy.settings.redis import RedisSettings, password_of


def make_deliverer(
    group: Group, topic: Topic, settings: DeliverySettings, *, secrets: Mapping[str, bytes]
) -> Deliverer:
    """The deliverer of *topic* for *group*; *secrets* are the proxy's, by name."""
    if isinstance(settings, PushSettings):
        return HttpPush(
            push_rules_of(settings, secrets),
            answer_rules_of(settings),
            timeout_s=settings.timeout_s,
            concurrency=settings.concurrency,
            max_rate=settings.max_rate,
            tls=_trust(settings),
        )
    if isinstance(settings, RedisSettings):
        from proxy.delivery.redis_sink import RedisSink  # an extra, of whoever wants it

        return RedisSink(settings, password=password_of(settings, secrets))
    raise TypeError(f"{group} {topic}: no deliverer for an action {settings.kind}")


def undeliverable(
    groups: Iterable[GroupSettings], *, secrets: Mapping[str, bytes]
) -> Iterator[str]:
    """A sentence for each topic of *groups* whose deliverer cannot be made by this process."""
    for group in groups:
        for topic in group.topics:
            settings = topic.delivery
            try:
                if isinstance(settings, PushSettings):
                    push_rules_of(settings, secrets)
                    _trust(settings)
                elif isinstance(settings, RedisSettings):
                    password_of(settings, secrets)
                    _trust(settings)
            except ValueError as error:
                kind = "" if settings is None else settings.kind
                yield f"group {group.name}, topic {topic.name}: its {kind}: {error}"


def _trust(settings: PushSettings | RedisSettings) -> SSLContext | None:
    if settings.ca_file is None:
        return None
    try:
        return client_context(settings.ca_file)
    except ValueError as error:
        raise ValueError(f"its ca_file {settings.ca_file} {error}") from None


def secrets_of(settings: Settings) -> dict[str, bytes]:
    """Those that *settings* name. Raises SettingsError if one is missing, or no action fits it."""
    secrets = read_secrets(settings.secrets)
    if problems := list(undeliverable(settings.groups, secrets=secrets)):
        raise SettingsError("\n".join(problems))
    return secrets
