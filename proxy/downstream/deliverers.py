"""From the settings of a delivering action to what delivers."""

from __future__ import annotations

from broker_core.names import Group, Topic
from proxy.delivery_settings import DeliverySettings
from proxy.downstream.deliverer import Deliverer
from proxy.redis_settings import RedisSettings


def make_deliverer(group: Group, topic: Topic, settings: DeliverySettings) -> Deliverer:
    """The deliverer of *topic* for *group*."""
    if isinstance(settings, RedisSettings):
        from proxy.downstream.redis_sink import RedisSink  # an extra, of whoever wants it

        return RedisSink(settings)
    raise TypeError(f"{group} {topic}: no deliverer for an action {settings.kind}")
