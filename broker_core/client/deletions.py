"""Deletes groups and topics at all brokers and nameservers that have them."""

from __future__ import annotations

from broker_core.client.requests import BrokerRequests
from broker_core.client.routes import RouteCache
from broker_core.errors import BrokerError, BrokersAway, ConnectionLost, RequestTimeout
from broker_core.names import Group, Topic
from broker_core.remoting import bodies, headers
from broker_core.remoting.codes import RequestCode, ResponseCode


class Deletions:
    """Deletions without confirmation. All methods raise RemotingError, and can be repeated then."""

    def __init__(self, requests: BrokerRequests, routes: RouteCache) -> None:
        self._requests = requests
        self._routes = routes

    async def consumers(self) -> set[tuple[Group, Topic]]:
        """Return all groups with committed offsets at any broker, with their topics."""
        found: set[tuple[Group, Topic]] = set()
        for broker in await self._brokers():
            answer = await self._requests.ask(broker, RequestCode.GET_ALL_CONSUMER_OFFSET)
            found |= bodies.consumers_from_json(answer.body)
        return found

    async def delete_group(self, group: Group) -> None:
        """Delete the offsets and the configuration of *group*."""
        header = headers.DeleteGroupHeader(group_name=group, clean_offset=True, remove_offset=True)
        for broker in await self._brokers():
            await self._requests.ask(broker, RequestCode.DELETE_SUBSCRIPTIONGROUP, header.to_ext())

    async def delete_topic(self, topic: Topic) -> None:
        """Delete *topic* with its messages at all brokers, and its route.

        Raises BrokersAway, once all others have deleted it, if a broker that has it does not
        answer or is not registered: it would return with the topic. The route is then kept.
        """
        header = headers.TopicHeader(topic=topic).to_ext()
        had_it, registered = self._routes.brokers_of(topic), await self._brokers()
        away = set(had_it.difference(registered))
        for broker in registered:
            try:
                await self._requests.ask(broker, RequestCode.DELETE_TOPIC_IN_BROKER, header)
            except (ConnectionLost, RequestTimeout):
                away.add(broker)
            except BrokerError as error:
                # Apache's 5.3 reports an error after the deletion if it has no timer wheel.
                if error.code != ResponseCode.SYSTEM_ERROR or await self._has(broker, topic):
                    raise
        if away:
            were, they_are = ("was", "it is") if len(away) == 1 else ("were", "they are")
            raise BrokersAway(
                f"topic {topic} was deleted except at {', '.join(sorted(away))}, which {were} not"
                f" reached: repeat the deletion when {they_are} back",
                away,
            )
        await self.forget_topic(topic)

    async def forget_topic(self, topic: Topic) -> None:
        """Delete the route of *topic*, which is deleted at the brokers."""
        await self._routes.delete_topic(topic)

    async def _has(self, broker: str, topic: Topic) -> bool:
        answer = await self._requests.ask(broker, RequestCode.GET_ALL_TOPIC_CONFIG)
        return f'"{topic}"'.encode() in bytes(answer.body)

    async def _brokers(self) -> list[str]:
        return sorted((await self._routes.clusters()).brokers)
