"""Converts a topic's settings to the rules of the core."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from weakref import WeakValueDictionary

from proxy.actions.pipeline import (
    Action,
    Actions,
    compile_filter,
    compile_transform,
    tags_filter,
    transform,
    where_filter,
)
from proxy.core.keys.kinds.registry import compile_order_key
from proxy.core.keys.order_key import MissingKey
from proxy.core.keys.retry_policy import MS, OnExhausted, RetryPolicy
from proxy.core.keys.topic_rules import TopicRules, parse_tags
from proxy.settings.actions import ActionSettings
from proxy.settings.groups import TopicSettings

#: The rules of all topics with queues, however many there are.
_in_use: WeakValueDictionary[tuple[TopicSettings, bool], TopicRules] = WeakValueDictionary()


@lru_cache(maxsize=1024)  # keeps some that no queue has
def rules_of(topic: TopicSettings, *, has_default_key: bool = False) -> TopicRules:
    """Return the compiled settings of one topic, which were checked when loaded: the same object
    for equal settings as long as it is in use. *has_default_key*: as for ``TopicRules``.
    """
    place = topic, has_default_key
    if (rules := _in_use.get(place)) is None:
        rules = _in_use[place] = _compiled(topic, has_default_key=has_default_key)
    return rules


def _compiled(topic: TopicSettings, *, has_default_key: bool) -> TopicRules:
    return TopicRules(
        order_key=compile_order_key(topic.order_key),
        missing_key=MissingKey(topic.missing_key),
        tags=parse_tags(topic.tags),
        visibility_ns=int(topic.visibility_timeout_s * 1000) * MS,
        retry=RetryPolicy(
            intervals_ms=topic.retry_intervals_ms,
            max_deliveries=topic.max_deliveries,
            on_exhausted=OnExhausted(topic.on_exhausted),
        ),
        max_pull_batch=topic.max_pull_batch,
        max_jobs=topic.max_jobs_in_memory,
        max_jobs_per_key=topic.max_jobs_per_key_in_memory,
        drops_shadow_traffic=topic.pressure_traffic == "drop",
        actions=_actions_of(topic.actions),
        order_key_version=topic.order_key_version,
        has_default_key=has_default_key,
    )


def _actions_of(settings: Iterable[ActionSettings]) -> Actions:
    """Return the actions that affect delivery, numbered by their place in the settings."""
    actions = []
    for number, each in enumerate(settings, start=1):
        if each.filter is not None and each.filter.where is not None:
            step = where_filter(compile_filter(each.filter.where))
        elif each.filter is not None:
            step = tags_filter(parse_tags(each.filter.tags or ""))
        elif each.transform is not None:
            step = transform(compile_transform(each.transform.to))
        else:
            continue
        actions.append(Action(number, each.kind, step))
    return Actions(tuple(actions))
