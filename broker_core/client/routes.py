"""Routes of topics and addresses of brokers, as returned by nameservers.

Routes are refreshed in the background, so that callers never wait for a nameserver about a known
topic, nor notice that all of them are down. An address is requested again after a connection to it
was lost: a broker may return on another port. Masters of brokers with replicas are requested every
two seconds: a former master of Apache RocketMQ keeps its connections, and grants locks of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

import structlog

from broker_core.client.connection_pool import ConnectionPool
from broker_core.clock import now_ns
from broker_core.errors import (
    BrokerError,
    ConnectionLost,
    NotRegistered,
    RemotingError,
)
from broker_core.names import Topic
from broker_core.remoting.codes import RequestCode, ResponseCode, request_name
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import TopicHeader
from broker_core.remoting.route_bodies import (
    MASTER_ID,
    BrokerData,
    ClusterTable,
    TopicRoute,
    topic_list_from_json,
)

#: As in RocketMQ's clients.
REFRESH_S = 30.0
#: While a known broker is missing, mostly because it restarts; and for how long at most.
MISSED_REFRESH_S, _MISSED_NS = 2.0, 120_000_000_000

_log = structlog.get_logger("routes")


class RouteCache:
    """Asks nameservers in turn until one answers, starting with the last good one."""

    def __init__(
        self,
        nameservers: Sequence[str],
        pool: ConnectionPool,
        *,
        timeout_s: float,
        on_moved: Callable[[str], None] | None = None,
    ) -> None:
        """Ask *nameservers*, each host:port, with *timeout_s* for each one's answer.

        *on_moved* is called with the name of each broker whose master has another address now.
        """
        self._nameservers = list(nameservers)
        self._on_moved = on_moved
        self._pool = pool
        self._timeout_s = timeout_s
        self._routes: dict[Topic, TopicRoute] = {}
        self._masters: dict[str, str] = {}  # address by broker name
        self._asked = 0  # questions so far
        #: Brokers whose address may have changed since the question of that number.
        self._doubted: dict[str, int] = {}
        self._replicated: set[str] = set()  # brokers with several addresses
        self._missed: dict[
            tuple[Topic, str], int
        ] = {}  # deadline up to which a broker is waited for

    async def route(self, topic: Topic, *, fresh: bool = False) -> TopicRoute:
        """Return the route of *topic*; *fresh*: ask now.

        Raises BrokerError(17) if there is none, and NotRegistered if there may be one: while a
        broker that had the topic, or every broker, is not registered, mostly because it restarts.
        """
        if not fresh and (known := self._routes.get(topic)) is not None:
            return known
        try:
            return await self._fetch(topic)
        except BrokerError as error:
            if error.code == ResponseCode.TOPIC_NOT_EXIST:
                await self._check_not_away(topic)
            self._routes.pop(topic, None)
            raise

    def knows(self, topic: Topic) -> bool:
        """Return whether ``route`` returns a route of *topic* without asking."""
        return topic in self._routes

    async def look(self, topic: Topic) -> TopicRoute:
        """Ask for the route of *topic*, without keeping it: a kept one is refreshed for ever.

        Raises BrokerError(17) if there is none.
        """
        header = TopicHeader(topic=topic, accept_standard_json_only=True)
        answer = await self._ask(
            RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext=header.to_ext())
        )
        return TopicRoute.from_json(answer.body)

    def known_master(self, broker: str) -> str | None:
        """Return the address of a broker's master, if it is known and not in doubt."""
        return None if broker in self._doubted else self._masters.get(broker)

    async def find_master(self, broker: str) -> str:
        """Ask for the address of a broker's master; raise ConnectionLost if there is none.

        The last known address is used while no nameserver answers or the broker is not registered.
        """
        try:
            await self.clusters()
        except RemotingError:
            if broker not in self._masters:
                raise
        if (address := self._masters.get(broker)) is None:
            raise NotRegistered(f"broker {broker} is not registered at {self._names()}")
        return address

    def brokers_at(self, address: str) -> list[str]:
        """Return the brokers whose master is known to be at *address*."""
        return [broker for broker, known in self._masters.items() if known == address]

    def doubt(self, broker: str) -> None:
        """Ask for the broker's address before its next use."""
        self._doubted[broker] = self._asked

    def doubt_silent(self, broker: str) -> None:
        """Ask for the address before its next use, if another replica may be master by now."""
        if broker in self._replicated:
            self.doubt(broker)

    def brokers_of(self, topic: Topic) -> frozenset[str]:
        """Return the brokers known to have *topic*, and those that had it two minutes ago."""
        route = self._routes.get(topic)
        there = {data.broker for data in route.brokers} if route is not None else set()
        return frozenset(there | {broker for missed, broker in self._missed if missed == topic})

    async def clusters(self) -> ClusterTable:
        """Ask for all brokers."""
        number = self._number()
        answer = await self._ask(RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO))
        table = ClusterTable.from_json(answer.body)
        self._learn(table.brokers.values(), number)
        return table

    async def topics(self) -> list[Topic]:
        """Ask for all topics, including the system's."""
        answer = await self._ask(RemotingCommand(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))
        return topic_list_from_json(answer.body)

    async def delete_topic(self, topic: Topic) -> None:
        """Delete *topic* at all nameservers, until a broker registers it again.

        Raises RemotingError: some may still have it.
        """
        self._routes.pop(topic, None)
        self._missed = {each: until for each, until in self._missed.items() if each[0] != topic}
        header = TopicHeader(topic=topic)
        failure: RemotingError | None = None
        for address in list(self._nameservers):  # all of them, even if one does not answer
            command = RemotingCommand(RequestCode.DELETE_TOPIC_IN_NAMESRV, ext=header.to_ext())
            try:
                answer = await self._pool.request(address, command, timeout_s=self._timeout_s)
                _check(command, answer)
            except RemotingError as error:
                failure = error.with_traceback(None)
        if failure is not None:
            raise failure

    async def keep_fresh(self) -> None:
        """Refresh all known routes every 30 s until cancelled; more often if a broker is
        missing. Masters of brokers with replicas are refreshed every 2 s.
        """
        last_ns = now_ns()
        while True:
            await asyncio.sleep(min(REFRESH_S, MISSED_REFRESH_S))  # for brokers missed meanwhile
            self._give_up_on_missed()
            topics = {topic for topic, _ in self._missed} & self._routes.keys()
            if now_ns() - last_ns >= REFRESH_S * 0.9e9:
                topics, last_ns = set(self._routes), now_ns()
            for topic in sorted(topics):
                try:
                    await self._fetch(topic)
                except RemotingError as error:  # the old route is better than none
                    _log.debug("route not refreshed", topic=topic, reason=str(error))
            if self._replicated:
                try:
                    await self.clusters()
                except RemotingError as error:
                    _log.debug("masters not refreshed", reason=str(error))

    async def _fetch(self, topic: Topic) -> TopicRoute:
        number = self._number()
        route = await self.look(topic)
        self._miss(topic, before=self._routes.get(topic), now=route)
        self._routes[topic] = route
        self._learn(route.brokers, number)
        return route

    def _number(self) -> int:
        self._asked += 1
        return self._asked

    async def _check_not_away(self, topic: Topic) -> None:
        """Raise NotRegistered if *topic* may have a route again once a broker is registered."""
        registered = (await self.clusters()).brokers
        if not registered:
            raise NotRegistered(f"no broker is registered at {self._names()}")
        known = self._routes.get(topic)
        for data in known.brokers if known is not None else ():
            if data.broker not in registered:
                self._missed.setdefault((topic, data.broker), now_ns() + _MISSED_NS)
        self._give_up_on_missed()
        missed = {broker for each, broker in self._missed if each == topic}
        if away := sorted(missed.difference(registered)):
            names = ", ".join(away)
            raise NotRegistered(f"{topic}: its broker {names} is not registered at {self._names()}")

    def _miss(self, topic: Topic, *, before: TopicRoute | None, now: TopicRoute) -> None:
        there = {data.broker for data in now.brokers}
        for name in sorted(there):
            self._missed.pop((topic, name), None)
        for data in before.brokers if before is not None else ():
            if data.broker not in there:
                self._missed[topic, data.broker] = now_ns() + _MISSED_NS

    def _give_up_on_missed(self) -> None:
        """Forget brokers that stayed away, and the routes of topics that only they had."""
        now = now_ns()
        gone = {each for each, until in self._missed.items() if now >= until}
        for topic, broker in gone:
            del self._missed[topic, broker]
            route = self._routes.get(topic)
            if route is not None and all((topic, data.broker) in gone for data in route.brokers):
                del self._routes[topic]

    def _learn(self, brokers: Iterable[BrokerData], number: int) -> None:
        """Note the addresses that answer question *number*; a doubt since then remains."""
        for data in brokers:
            if len(data.addresses) > 1:
                self._replicated.add(data.broker)
            if (address := data.addresses.get(MASTER_ID)) is not None:
                before = self._masters.get(data.broker, address)
                self._masters[data.broker] = address
                if self._doubted.get(data.broker, number) < number:
                    del self._doubted[data.broker]
                if address != before and self._on_moved is not None:
                    self._on_moved(data.broker)

    async def _ask(self, command: RemotingCommand) -> RemotingCommand:
        problem: RemotingError = ConnectionLost("no nameserver is configured")
        for address in list(self._nameservers):
            try:
                answer = await self._pool.request(address, command, timeout_s=self._timeout_s)
                _check(command, answer)
            except RemotingError as error:
                if isinstance(error, BrokerError) and not error.says_stopping:
                    raise
                problem = error.with_traceback(None)
                # Moved to the end of the list.
                self._nameservers.remove(address)
                self._nameservers.append(address)
                continue
            return answer
        raise ConnectionLost(f"no nameserver of {self._names()} answers: {problem}")

    def _names(self) -> str:
        return ", ".join(sorted(self._nameservers))


def _check(command: RemotingCommand, answer: RemotingCommand) -> None:
    if answer.code != ResponseCode.SUCCESS:
        raise BrokerError(answer.code, answer.remark or "", request=request_name(command.code))
