"""Input of the order-key verbs: a group's topic and a sample of its messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from broker_core.names import Group, Topic
from proxy.cli.connect import ask_proxy, broker_client
from proxy.cli.owner_requests import look, path_of
from proxy.core.jobs.hand_out import HandOut
from proxy.errors import OrderlaneError
from proxy.lane.topic_rules import rules_of
from proxy.live.stored_group import group_of
from proxy.settings.groups import TopicSettings
from proxy.tuning.sample import Sample
from proxy.upstream.reading.sampling import Sampling


@dataclass(frozen=True, slots=True)
class Known:
    """A group's description by the proxy, its selected topic, its delivery policy, and its limit of
    leased messages.
    """

    group: str
    described: dict[str, Any]
    topic: TopicSettings
    hand_out: HandOut
    max_leased: int


def known(http: str, group: str, topic: str | None) -> Known:
    """Return a group and its topic. Raises OrderlaneError if either is unknown or ambiguous."""
    described = look(http, path_of("groups", group))
    settings = described["settings"]
    if settings is None:
        raise OrderlaneError(f"group {group!r} is not served: {described['refused']}")
    of_group = group_of(group, settings)
    topics = {str(each.name): each for each in of_group.topics}
    if topic is None and len(topics) > 1:
        raise OrderlaneError(
            f"group {group!r} has several topics ({', '.join(topics)}): add --topic"
        )
    name = next(iter(topics)) if topic is None else topic
    if name not in topics:
        raise OrderlaneError(
            f"group {group!r} has no topic {name!r}; its topics: {', '.join(topics)}"
        )
    return Known(
        group, described, topics[name], HandOut(of_group.hand_out), of_group.max_leased_jobs
    )


async def take_sample(
    of: Known, nameserver: str, *, most: int, candidates: Sequence[str]
) -> Sample:
    """Return a sample of the newest *most* messages of the topic.

    Without *candidates*, order keys found in the messages are used. Raises OrderlaneError if there
    is no message, or a candidate is not an order key.
    """
    topic = Topic(of.topic.name)
    async with broker_client(nameserver) as client:
        try:
            sample = await Sampling(client, Group(of.group), topic, rules_of(of.topic)).take(
                most=most, candidates=candidates
            )
        except ValueError as error:
            raise OrderlaneError(f"--candidate: {error}") from None
    if not len(sample):
        raise OrderlaneError(
            f"none of the newest {most:,} messages of topic {topic} match the tags of group"
            f" {of.group} ({of.topic.tags})"
        )
    return sample


def queues_at(address: str, group: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a proxy's view of a group, and of its queues. Raises OrderlaneError."""
    groups = orjson.loads(ask_proxy(address, "/api/groups"))
    found = groups.get(group)
    if found is None:
        raise OrderlaneError(f"the proxy at {address} does not serve group {group!r}")
    return found, found["queues"]
