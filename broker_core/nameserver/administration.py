"""A nameserver's requests of administrators: 205, 327 (stop, resume sends to a broker), 224, 304
(topics).
"""

from __future__ import annotations

import structlog

from broker_core.nameserver.routes import Routes
from broker_core.remoting.admin_bodies import topics_at_to_json
from broker_core.remoting.admin_headers import (
    AddedResponse,
    BrokerNameHeader,
    ClusterHeader,
    WipedResponse,
)
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.route_bodies import topic_list_to_json
from broker_core.remoting_channel import Answer, Handler, RemotingChannel

_log = structlog.get_logger("nameserver")


class NameserverAdministration:
    """Administrative requests. Their effect is in memory, and ends with a restart."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        return {
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
        }

    def _wipe(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        count = self._set_writable(request, False)
        return request.response(ext=WipedResponse(wipe_topic_count=count).to_ext())

    def _add(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        count = self._set_writable(request, True)
        return request.response(ext=AddedResponse(add_topic_count=count).to_ext())

    def _set_writable(self, request: RemotingCommand, writable: bool) -> int:
        broker = BrokerNameHeader.from_ext(request.ext).broker_name
        topics = self._routes.set_writable(broker, writable)
        _log.info("broker may be written", broker=broker[:200], writable=writable, topics=topics)
        return topics

    def _topics(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        cluster = ClusterHeader.from_ext(request.ext).cluster
        return request.response(body=topic_list_to_json(self._routes.topics_of_cluster(cluster)))

    def _system_topics(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        """Return names of clusters and brokers: Apache's brokers have topics of these names."""
        table = self._routes.clusters()
        addresses = [
            each.addresses[one] for each in table.brokers.values() for one in each.addresses
        ]
        names = {*table.clusters, *table.brokers}
        return request.response(body=topics_at_to_json(names, addresses[0] if addresses else None))
