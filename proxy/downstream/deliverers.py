"""From the settings of a delivering action to what delivers."""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.names import Group, Topic
from proxy.delivery_settings import DeliverySettings
from proxy.downstream.deliverer import Deliverer
from proxy.downstream.http_push import HttpPush
from proxy.push_settings import PushSettings, answer_rules_of, push_rules_of
from proxy.redis_settings import RedisSettings


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
        )
    if isinstance(settings, RedisSettings):
        from proxy.downstream.redis_sink import RedisSink  # an extra, of whoever wants it

        return RedisSink(settings)
    raise TypeError(f"{group} {topic}: no deliverer for an action {settings.kind}")
