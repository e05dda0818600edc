"""Members of a group and their demand for its topics, as seen by the brokers."""

from __future__ import annotations

from collections.abc import Callable, Collection

from broker_core.client import BrokerClient
from broker_core.clock import now_ns
from broker_core.errors import ConnectionLost, RemotingError, RequestTimeout
from broker_core.names import Group, Topic
from broker_core.tasks import spawn
from proxy.core.ownership.demand_signs import shows_signs, sign_of
from proxy.core.ownership.group_share import Present

#: Interval between requests to strangers: their subscriptions rarely change.
_ASK_AGAIN_NS = 60_000_000_000


class GroupMembers:
    """The members of *group*, as brokers list them during one look at its topics.

    Topics on the same brokers share one list: a group of many topics asks for its members once.
    Brokers that do not answer are asked once, too: the topics elsewhere wait for one time-out, not
    for one of each topic there.
    """

    def __init__(self, client: BrokerClient, group: Group) -> None:
        self._client = client
        self._group = group
        self._members: dict[tuple[str, ...], list[str]] = {}
        self._silent: dict[tuple[str, ...], str] = {}  # with the reason

    async def wanting(self, topic: Topic) -> Present:
        """Return the members and those that want *topic*; strangers count as its subscribers.

        Signs of demand are not requested if this proxy is the only member. Raises RemotingError.
        """
        brokers = tuple(await self._client.broker_names(topic))
        if (reason := self._silent.get(brokers)) is not None:
            raise ConnectionLost(reason)
        try:
            return await self._ask(topic, brokers)
        except (ConnectionLost, RequestTimeout) as error:
            self._silent[brokers] = str(error)
            raise

    async def _ask(self, topic: Topic, brokers: tuple[str, ...]) -> Present:
        client = self._client
        if (members := self._members.get(brokers)) is None:
            members = await client.consumer_ids(self._group, topic)
            self._members[brokers] = members
        if set(members) <= {client.client_id}:
            return Present(members)
        signs = set(await client.producer_ids(sign_of(self._group, topic), topic))
        strangers = [each for each in members if each != client.client_id and not shows_signs(each)]
        wanting = [each for each in members if each in signs]
        return Present(members, wanting, dict.fromkeys(strangers, True))


class Strangers:
    """Subscriptions of members of *group* without signs of demand.

    Strangers are asked in the background, through a broker; until one has answered it counts as a
    subscriber of all topics. *news* is called after a changed answer.
    """

    def __init__(self, client: BrokerClient, group: Group, news: Callable[[], None]) -> None:
        self._client = client
        self._group = group
        self._news = news
        self._asked_ns: dict[str, int] = {}
        self._topics: dict[str, Collection[Topic]] = {}

    def with_subscriptions(self, there: Present, topic: Topic) -> Present:
        """Return *there* with the known subscriptions of its strangers; ask again for old ones."""
        for gone in self._asked_ns.keys() - set(there.members):
            del self._asked_ns[gone]
            self._topics.pop(gone, None)
        now = now_ns()
        for each in there.strangers:
            if now - self._asked_ns.get(each, -_ASK_AGAIN_NS) >= _ASK_AGAIN_NS:
                self._asked_ns[each] = now
                spawn(self._ask(each, topic), name=f"ask {each} for {self._group}")
        known = self._topics
        return there._replace(
            strangers={each: topic in known.get(each, (topic,)) for each in there.strangers}
        )

    async def _ask(self, stranger: str, topic: Topic) -> None:
        try:
            topics = await self._client.subscribed(self._group, stranger, topic)
        except RemotingError:
            return  # it keeps its previous subscriptions
        if stranger in self._asked_ns and self._topics.get(stranger) != topics:
            self._topics[stranger] = topics
            self._news()
