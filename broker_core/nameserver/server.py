"""The nameserver on the network: maps request codes to ``Routes``."""

from __future__ import annotations

import asyncio
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import structlog

from broker_core.access.file import AccessFile
from broker_core.clock import now_ns
from broker_core.errors import BrokerError, InvalidCommand, StoreError
from broker_core.names import Topic
from broker_core.nameserver.administration import NameserverAdministration
from broker_core.nameserver.routes import EXPIRY_NS, ORDER_TOPICS, Registration, Routes
from broker_core.remoting import headers, nameserver_headers
from broker_core.remoting.bodies import table_to_json
from broker_core.remoting.codes import RequestCode, ResponseCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.compressed_registration import registration_from_compressed
from broker_core.remoting.route_bodies import (
    MASTER_ID,
    BrokerRegistration,
    DataVersion,
    topic_list_to_json,
)
from broker_core.remoting_channel import Answer, RemotingChannel
from broker_core.remoting_server import RemotingServer
from broker_core.store.data_folder import hold
from broker_core.store.tables import JsonTable
from broker_core.tasks import cancel_and_wait, spawn
from broker_core.tls_settings import ServerTls

_SWEEP_S = 5.0
_MAX_NAME_CHARS = 255
_MAX_LIFETIME_MS = 24 * 3_600_000
_ZLIB_START = b"\x78"
_ADDRESS = re.compile(r"[^\s:]+:[0-9]{1,5}|\[[0-9a-fA-F:.%]+\]:[0-9]{1,5}")
#: Requests of clients, which need no account: they change nothing.
_READING = frozenset(
    {
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_KV_CONFIG,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    }
)

_log = structlog.get_logger("nameserver")


class NameServer:
    """Serves clients and brokers of 4.9 and 5.x. Everything is in memory, except that values set by
    clients are saved in *data*, if given.

    Example::

        nameserver = NameServer("127.0.0.1", 9876)
        await nameserver.start()
        ...
        await nameserver.close()
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        data: Path | None = None,
        tls: ServerTls | None = None,
        acl: Path | None = None,
    ) -> None:
        """Prepare a nameserver. Raise TlsError if a certificate or key of *tls* cannot be used, and
        StoreError if the accounts in *acl* cannot be used.

        *port* 0 is any free one, see ``address``. *data*: folder for ``kvConfig.json``. *acl*: file
        of accounts, as the brokers have: brokers have to sign their registrations with an
        administrator's account, and administrators their changes; reading stays open.
        """
        self.address = f"{host}:{port}"
        self._host, self._port = host, port
        #: Its tables.
        self.routes = self._routes = Routes()
        self._table = None if data is None else JsonTable(data / "kvConfig.json")
        self._may_differ = False  # the file, from the values: its last save failed
        self._access = AccessFile(acl, log="nameserver")
        handlers = {
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.QUERY_DATA_VERSION: self._compare_version,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._clusters,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._topics,
            RequestCode.PUT_KV_CONFIG: self._put_value,
            RequestCode.GET_KV_CONFIG: self._get_value,
            RequestCode.DELETE_KV_CONFIG: self._delete_value,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._values,
            **NameserverAdministration(self._routes).handlers(),
        }
        #: Its listening side.
        self.server = RemotingServer(
            self._access.guarded(handlers, open_to_all=_READING),
            on_closed=self._connection_closed,
            tls=tls,
        )
        self._sweeper: asyncio.Task[None] | None = None
        self._folder, self._held = data, -1

    async def start(self) -> None:
        """Listen. Raise OSError that names the address, or StoreError for unreadable values or a
        folder in use.
        """
        if self._folder is not None:
            self._held = hold(self._folder)
        try:
            await self._start()
        except BaseException:
            self._let_go()
            raise

    def _let_go(self) -> None:
        if self._held >= 0:
            os.close(self._held)
            self._held = -1

    async def _start(self) -> None:
        if self._table is not None:
            try:
                for namespace, key, value in _stored_values(self._table.load()):
                    self._routes.put_value(namespace, key, value=value)
                self._table.repair()
            except InvalidCommand as error:
                raise StoreError(f"table {self._table.path} cannot be used: {error}") from None
        self.address = await self.server.listen(self._host, self._port)
        self._access.start()
        self._sweeper = spawn(self._sweep(), name="drop silent brokers")

    async def close(self) -> None:
        """Stop listening and disconnect all peers."""
        await cancel_and_wait(self._sweeper)
        await self._access.close()
        await self.server.close()
        self._let_go()

    # -- brokers -------------------------------------------------------------------------------

    def _register(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = nameserver_headers.RegisterBrokerHeader.from_ext(request.ext)
        _check_names(header)
        body = _registration(header, request.body)
        lifetime_ns = _lifetime_ns(header)
        replaced = self._routes.register(
            Registration(
                header=header,
                topics=dict(body.topics),
                connection=channel,
                expires_ns=now_ns() + lifetime_ns,
                lifetime_ns=lifetime_ns,
                version=body.version,
                ha_address=header.ha_server_addr,
                part=_part(header),
            )
        )
        if replaced is None or replaced.header.broker_addr != header.broker_addr:
            _log.info("broker registered", **_names(header), topics=len(body.topics))
        order_topics = self._routes.values(ORDER_TOPICS)
        return request.response(
            ext=self._master_of(header).to_ext(),
            body=table_to_json(order_topics) if order_topics else b"",
        )

    def _master_of(
        self, header: nameserver_headers.RegisterBrokerHeader
    ) -> nameserver_headers.RegisterBrokerResponse:
        master = self._routes.master(header.broker_name)
        if header.broker_id == MASTER_ID or master is None:
            return nameserver_headers.RegisterBrokerResponse()
        return nameserver_headers.RegisterBrokerResponse(
            ha_server_addr=master.ha_address, master_addr=master.header.broker_addr
        )

    def _unregister(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        gone = self._routes.unregister(nameserver_headers.BrokerHeader.from_ext(request.ext))
        _log_gone([gone] if gone else [], "left")
        return request.response()

    def _compare_version(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = nameserver_headers.BrokerHeader.from_ext(request.ext)
        asked = DataVersion.from_json(request.body)
        known = self._routes.refresh(header, connection=channel, now_ns=now_ns())
        return request.response(
            ext=nameserver_headers.QueryDataVersionResponse(changed=known != asked).to_ext(),
            body=b"" if known is None else known.to_json(),
        )

    def _delete_topic(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        self._routes.delete_topic(Topic(headers.TopicHeader.from_ext(request.ext).topic))
        return request.response()

    def _connection_closed(self, channel: RemotingChannel) -> None:
        _log_gone(self._routes.connection_closed(channel), "connection closed")

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            _log_gone(self._routes.expire(now_ns()), "silent")

    # -- requests of clients ---------------------------------------------------------------------

    def _route(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        topic = headers.TopicHeader.from_ext(request.ext).topic
        route = self._routes.route(Topic(topic))
        if route is None:
            raise BrokerError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"No topic route info in name server for the topic: {topic}",
            )
        return request.response(body=route.to_json())

    def _clusters(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        return request.response(body=self._routes.clusters().to_json())

    def _topics(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        return request.response(body=topic_list_to_json(self._routes.topics()))

    # -- values --------------------------------------------------------------------------------

    def _put_value(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = nameserver_headers.PutKvHeader.from_ext(request.ext)
        self._change_value(header.namespace, header.key, header.value)
        return request.response()

    def _get_value(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = nameserver_headers.KvKeyHeader.from_ext(request.ext)
        value = self._routes.value(header.namespace, header.key)
        if value is None:
            raise BrokerError(
                ResponseCode.QUERY_NOT_FOUND,
                f"No config item, Namespace: {header.namespace} Key: {header.key}",
            )
        return request.response(ext=nameserver_headers.KvValueResponse(value=value).to_ext())

    def _delete_value(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = nameserver_headers.KvKeyHeader.from_ext(request.ext)
        self._change_value(header.namespace, header.key, None)
        return request.response()

    def _change_value(self, namespace: str, key: str, value: str | None) -> None:
        """Set a value, or delete it (None). A change that was not saved is none: no client
        reads it, and repeating the request saves again.
        """
        old = self._routes.value(namespace, key)
        if value == old and not self._may_differ:
            return
        self._set_value(namespace, key, value)
        try:
            self._save()
        except BrokerError:
            self._set_value(namespace, key, old)
            raise

    def _set_value(self, namespace: str, key: str, value: str | None) -> None:
        if value is None:
            self._routes.delete_value(namespace, key)
        else:
            self._routes.put_value(namespace, key, value=value)

    def _save(self) -> None:
        """Save before answering, as RocketMQ does: values are few, and seldom set."""
        if self._table is None:
            return
        try:
            self._table.save({"configTable": self._routes.all_values()})
            self._may_differ = False
        except OSError as error:
            self._may_differ = True
            _log.error("value not saved", table=str(self._table.path), reason=str(error))
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR, f"the value was not saved: {error.strerror}"
            ) from None

    def _values(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        namespace = nameserver_headers.KvNamespaceHeader.from_ext(request.ext).namespace
        values = self._routes.values(namespace)
        if not values:
            raise BrokerError(
                ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}"
            )
        return request.response(body=table_to_json(values))


def _stored_values(content: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield namespace, key and value of each stored value. Raise InvalidCommand: people edit it."""
    table = content.get("configTable", {})
    for namespace, values in table.items() if isinstance(table, dict) else [("", None)]:
        if not isinstance(values, dict):
            raise InvalidCommand("configTable should be an object of objects, one per namespace")
        for key, value in values.items():
            if not isinstance(value, str):
                raise InvalidCommand(
                    f"value {key[:80]!r} of namespace {namespace[:80]!r} should be a text"
                )
            yield namespace, key, value


def _check_names(header: nameserver_headers.MemberHeader) -> None:
    for wire_name, name in (
        ("brokerName", header.broker_name),
        ("clusterName", header.cluster_name),
    ):
        if not (name.isprintable() and 0 < len(name) <= _MAX_NAME_CHARS):
            raise InvalidCommand(
                f"header field {wire_name} is {name[:80]!r}: expected 1 to {_MAX_NAME_CHARS}"
                " printable characters"
            )
    address = header.broker_addr
    if len(address) > _MAX_NAME_CHARS or not _ADDRESS.fullmatch(address):
        raise InvalidCommand(
            f"header field brokerAddr is {address[:80]!r}: expected host:port, as 10.0.0.1:10911"
        )


def _lifetime_ns(header: nameserver_headers.RegisterBrokerHeader) -> int:
    millis = header.heartbeat_timeout_millis
    if millis is None:
        return EXPIRY_NS
    if not 1 <= millis <= _MAX_LIFETIME_MS:
        raise InvalidCommand(
            f"header field heartbeatTimeoutMillis is {millis}: expected 1 to {_MAX_LIFETIME_MS}"
        )
    return millis * 1_000_000


def _part(header: nameserver_headers.RegisterBrokerHeader) -> tuple[int, int] | None:
    if header.part is None or header.parts is None:
        return None
    return header.part, header.parts


def _registration(
    header: nameserver_headers.RegisterBrokerHeader, body: bytes | memoryview
) -> BrokerRegistration:
    if header.body_crc32 and header.body_crc32 != (crc := zlib.crc32(body) & 0x7FFFFFFF):
        raise InvalidCommand(
            f"registration of {header.broker_name}: body has CRC {crc}, bodyCrc32 says"
            f" {header.body_crc32}"
        )
    if header.compressed or body[:1] == _ZLIB_START:  # brokers of 5.3 do not set the field
        return registration_from_compressed(body)
    return BrokerRegistration.from_json(body)


def _names(header: nameserver_headers.MemberHeader) -> dict[str, object]:
    return {
        "broker": header.broker_name,
        "id": header.broker_id,
        "address": header.broker_addr,
        "cluster": header.cluster_name,
    }


def _log_gone(gone: Iterable[Registration], why: str) -> None:
    for registration in gone:
        _log.info("broker dropped", **_names(registration.header), why=why)
