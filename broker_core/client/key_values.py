"""Values stored at nameservers by namespace and key, independently at each nameserver.

Nameservers do not share values. To store a value at all of them, callers put it at each, and must
decide which one is right if they differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker_core.client.connection_pool import ConnectionPool
from broker_core.errors import BrokerError
from broker_core.remoting.bodies import table_from_json
from broker_core.remoting.codes import RequestCode, ResponseCode, request_name
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.nameserver_headers import KvKeyHeader, KvNamespaceHeader, PutKvHeader


class KeyValues:
    """The values at *nameservers*, each given as host:port. All methods raise RemotingError."""

    def __init__(
        self, nameservers: Sequence[str], pool: ConnectionPool, *, timeout_s: float
    ) -> None:
        self.nameservers = tuple(nameservers)
        self._pool = pool
        self._timeout_s = timeout_s

    async def all_of(self, nameserver: str, namespace: str) -> dict[str, str]:
        """Return all values of *namespace* at *nameserver*, by key."""
        header = KvNamespaceHeader(namespace=namespace)
        answer = await self._ask(
            nameserver,
            RemotingCommand(RequestCode.GET_KVLIST_BY_NAMESPACE, ext=header.to_ext()),
            ok=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
        )
        return table_from_json(answer.body) if answer.code == ResponseCode.SUCCESS else {}

    async def put(self, nameserver: str, namespace: str, key: str, value: str) -> None:
        """Store *value* at *nameserver*, replacing an earlier one."""
        header = PutKvHeader(namespace=namespace, key=key, value=value)
        await self._ask(nameserver, RemotingCommand(RequestCode.PUT_KV_CONFIG, ext=header.to_ext()))

    async def delete(self, nameserver: str, namespace: str, key: str) -> None:
        """Delete the value of *key* at *nameserver*."""
        header = KvKeyHeader(namespace=namespace, key=key)
        command = RemotingCommand(RequestCode.DELETE_KV_CONFIG, ext=header.to_ext())
        await self._ask(nameserver, command)

    async def _ask(
        self,
        nameserver: str,
        command: RemotingCommand,
        *,
        ok: Sequence[int] = (ResponseCode.SUCCESS,),
    ) -> RemotingCommand:
        answer = await self._pool.request(nameserver, command, timeout_s=self._timeout_s)
        if answer.code not in ok:
            raise BrokerError(answer.code, answer.remark or "", request=request_name(command.code))
        return answer
