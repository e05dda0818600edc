"""Registration of this broker at nameservers: at the start, after changes, and every 30 s.

1. All topics are registered in parts, since a frame has room for some ten thousand; a change
   registers its topic alone. Nameservers add the topics of a part to those they know.
2. Nameservers, Apache's of 4.9 included, take a part only if its version differs from the last
   one. So each part has a version of its own, and only the last one that of the table.
3. A nameserver may have lost topics: it restarted, the connection broke, the broker was silent for
   too long, or a client deleted a route. Topics added to what is left would look like all topics,
   since they come with the version of the table. So a nameserver first compares the version it
   got last (322), and gets all topics again if its own differs. What follows goes over the same
   connection, or fails.
4. All topics come with the number of each part, by which an embedded nameserver forgets topics that
   were deleted while it was away, or by a client that ended before it told the nameserver.
5. Every 30 s a nameserver compares versions, which also keeps the broker alive, and every ten
   minutes it gets all topics in any case.

A slave receives the address of its master from a registration.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from broker_core.client.connection_pool import ConnectionPool
from broker_core.errors import BrokerError, ConnectionLost, NotConnected, RemotingError
from broker_core.names import Topic
from broker_core.remoting.codes import RequestCode, request_name
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.nameserver_headers import (
    BrokerHeader,
    MemberHeader,
    QueryDataVersionResponse,
    RegisterBrokerHeader,
    RegisterBrokerResponse,
)
from broker_core.remoting.route_bodies import (
    MASTER_ID,
    BrokerRegistration,
    DataVersion,
    TopicConfig,
)
from broker_core.remoting.signing import Credentials
from broker_core.remoting_channel import RemotingChannel
from broker_core.tasks import cancel_and_wait, spawn
from broker_core.tls import ClientContext

#: Topics of one part: RocketMQ's ``splitRegistrationSize``.
PART_TOPICS = 800

EVERY_S = 30.0
_AGAIN_S = 2.0  # after a nameserver could not be reached
_TIMEOUT_S = 3.0
_WHOLE_EVERY = 20  # of the rounds

_log = structlog.get_logger("broker")


@dataclass(slots=True)
class _Nameserver:
    """One nameserver, and what it has yet to receive."""

    address: str
    news: dict[Topic, None] = field(default_factory=dict)  # changed topics, oldest first
    version: DataVersion | None = None  # of the last complete registration
    whole: bool = True  # all topics, after a failure
    begun: int = 0  # registrations so far
    rounds: int = 0
    reachable: bool = True
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class RegisteredTopics(Protocol):
    """The topics of a broker."""

    @property
    def version(self) -> DataVersion:
        """Changes with each change of a topic."""

    def __iter__(self) -> Iterator[TopicConfig]: ...

    def find(self, topic: Topic) -> TopicConfig | None:
        """Return the configuration, or None if the topic does not exist."""


class Registration:
    """Keeps one broker registered with its *topics*.

    *broker_id* returns the current id, which changes if the master is elected.
    """

    def __init__(
        self,
        nameservers: Sequence[str],
        *,
        broker_name: str,
        cluster_name: str,
        address: str,
        topics: RegisteredTopics,
        broker_id: Callable[[], int] = lambda: MASTER_ID,
        every_s: float = EVERY_S,
        tls: ClientContext | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        #: Address of this slave's master, according to a nameserver; None if none ever reported it.
        self.master_address: str | None = None
        self._broker_name = broker_name
        self._cluster_name = cluster_name
        self._address = address
        self._broker_id = broker_id
        self._every_s = every_s
        self._topics = topics
        self._nameservers = [_Nameserver(each) for each in nameservers]
        self._pool = ConnectionPool(tls=tls, credentials=credentials)
        self._keeper: asyncio.Task[None] | None = None
        self._failure = asyncio.Event()

    @property
    def _header(self) -> BrokerHeader:
        return BrokerHeader(
            broker_name=self._broker_name,
            broker_addr=self._address,
            cluster_name=self._cluster_name,
            broker_id=self._broker_id(),
        )

    async def start(self) -> None:
        """Register for the first time, and periodically from now on."""
        await self.refresh()
        self._keeper = spawn(self._keep_registered(), name="register at nameservers")

    async def refresh(self) -> None:
        """Make sure now that all nameservers know this broker; log unreachable ones and try again
        later.
        """
        await asyncio.gather(*map(self._refresh_at, self._nameservers))

    async def announce(self, topics: Iterable[Topic] | None) -> None:
        """Register new or changed *topics* everywhere now, after the table has changed.

        None: all topics; an empty list: one was deleted, which only changes the version.
        """
        for each in self._nameservers:
            if topics is None:
                each.whole = True
            else:
                each.news |= dict.fromkeys(topics)
        await asyncio.gather(*map(self._announce_at, self._nameservers))

    async def close(self) -> None:
        """Unregister this broker at the nameservers that can be reached."""
        await cancel_and_wait(self._keeper)
        await asyncio.gather(*map(self._unregister_at, self._nameservers))
        await self.disconnect()

    async def disconnect(self) -> None:
        """Stop without unregistering."""
        await cancel_and_wait(self._keeper)
        await self._pool.close()

    async def _keep_registered(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._failure.wait()
                await asyncio.sleep(_AGAIN_S)
            self._failure.clear()
            await self.refresh()

    # ---- at one nameserver ----------------------------------------------------------------------

    async def _refresh_at(self, nameserver: _Nameserver) -> None:
        async with nameserver.turn:
            nameserver.rounds += 1
            if nameserver.rounds % _WHOLE_EVERY == 0 or nameserver.version != self._topics.version:
                nameserver.whole = True
            await self._register_at(nameserver)

    async def _announce_at(self, nameserver: _Nameserver) -> None:
        before = nameserver.begun
        async with nameserver.turn:
            if nameserver.begun > before:
                return  # that one included the change
            await self._register_at(nameserver)

    async def _register_at(self, nameserver: _Nameserver) -> None:
        try:
            try:
                await self._register(nameserver)
            except NotConnected:
                raise
            except ConnectionLost:  # it may have been dead for a while
                nameserver.whole = True
                await self._register(nameserver)
        except RemotingError as error:
            self._failed(nameserver, error)

    async def _unregister_at(self, nameserver: _Nameserver) -> None:
        async with nameserver.turn:
            try:
                channel = await self._pool.connected(nameserver.address, timeout_s=_TIMEOUT_S)
                await self._ask(channel, RequestCode.UNREGISTER_BROKER, self._header)
            except RemotingError as error:
                self._failed(nameserver, error)

    async def _register(self, nameserver: _Nameserver) -> None:
        """Register what *nameserver* has yet to receive, in parts; raise RemotingError."""
        channel = await self._pool.connected(nameserver.address, timeout_s=_TIMEOUT_S)
        if not await self._is_current(nameserver, channel):
            nameserver.whole = True
        nameserver.begun += 1
        whole, news, version = nameserver.whole, nameserver.news, self._topics.version
        is_slave = self._header.broker_id != MASTER_ID  # which learns of its master
        if whole or news or nameserver.version != version or is_slave:
            nameserver.whole, nameserver.news = False, {}  # requests meanwhile: the next one
            found = self._topics if whole else map(self._topics.find, news)
            try:
                parts = list(_parts([each for each in found if each is not None], version))
                for number, part in enumerate(parts):
                    place = (number, len(parts)) if whole else (None, None)
                    await self._register_part(channel, part, place)
            except BaseException:
                nameserver.whole = True
                raise
            nameserver.version = version
        if not nameserver.reachable:
            nameserver.reachable = True
            _log.info("registered at nameserver again", nameserver=nameserver.address)

    async def _is_current(self, nameserver: _Nameserver, channel: RemotingChannel) -> bool:
        """Return whether *nameserver* has all topics that it got last."""
        if nameserver.whole or nameserver.version is None:
            return False
        version = nameserver.version.to_json()
        answer = await self._ask(channel, RequestCode.QUERY_DATA_VERSION, self._header, version)
        return not QueryDataVersionResponse.from_ext(answer.ext).changed

    async def _register_part(
        self,
        channel: RemotingChannel,
        part: BrokerRegistration,
        place: tuple[int, int] | tuple[None, None],
    ) -> None:
        body = part.to_json()
        header = RegisterBrokerHeader(
            broker_name=self._broker_name,
            broker_addr=self._address,
            cluster_name=self._cluster_name,
            broker_id=self._broker_id(),
            ha_server_addr=self._address,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
            part=place[0],
            parts=place[1],
        )
        answer = await self._ask(channel, RequestCode.REGISTER_BROKER, header, body)
        response = RegisterBrokerResponse.from_ext(answer.ext)
        self.master_address = response.master_addr or self.master_address

    async def _ask(
        self, channel: RemotingChannel, code: RequestCode, header: MemberHeader, body: bytes = b""
    ) -> RemotingCommand:
        request = RemotingCommand(code, ext=header.to_ext(), body=body)
        answer = await self._pool.request_over(channel, request, timeout_s=_TIMEOUT_S)
        if answer.code != 0:
            raise BrokerError(answer.code, answer.remark or "", request=request_name(code))
        return answer

    def _failed(self, nameserver: _Nameserver, error: RemotingError) -> None:
        nameserver.whole = True
        self._failure.set()
        if nameserver.reachable:
            _log.warning(
                "not registered at nameserver", nameserver=nameserver.address, reason=str(error)
            )
        nameserver.reachable = False


def _parts(configs: Sequence[TopicConfig], version: DataVersion) -> Iterator[BrokerRegistration]:
    """Yield *configs* in parts, at least one; the last one has *version*.

    The first part of all topics contains the broker's own topics, or nameservers of 5.x could
    refuse it: they take a single topic for an addition, which an unknown broker cannot make.
    """
    parts = [configs[at : at + PART_TOPICS] for at in range(0, len(configs), PART_TOPICS)] or [()]
    for left, part in zip(range(len(parts) - 1, -1, -1), parts, strict=True):
        yield BrokerRegistration(
            topics={config.topic: config for config in part},
            # Versions of tables count from 0 on.
            version=DataVersion(version.timestamp, -left) if left else version,
        )
