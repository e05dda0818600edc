"""Registration of this broker at nameservers: at the start, every 30 s, and after changes.

A slave receives the address of its master from it.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Sequence

import structlog

from broker_core.client.connection_pool import ConnectionPool
from broker_core.errors import BrokerError, RemotingError
from broker_core.remoting.codes import RequestCode, request_name
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.nameserver_headers import (
    BrokerHeader,
    MemberHeader,
    RegisterBrokerHeader,
    RegisterBrokerResponse,
)
from broker_core.remoting.route_bodies import MASTER_ID, BrokerRegistration
from broker_core.tasks import cancel_and_wait, spawn
from broker_core.tls import ClientContext

_EVERY_S = 30.0
_AGAIN_S = 2.0  # after a nameserver could not be reached
_TIMEOUT_S = 3.0

_log = structlog.get_logger("broker")


class Registration:
    """Keeps one broker registered. *content* returns the current registration."""

    def __init__(
        self,
        nameservers: Sequence[str],
        *,
        broker_name: str,
        cluster_name: str,
        address: str,
        content: Callable[[], BrokerRegistration],
        broker_id: int = MASTER_ID,
        tls: ClientContext | None = None,
    ) -> None:
        #: Address of this slave's master, according to a nameserver; None if none ever reported it.
        self.master_address: str | None = None
        self._broker_id = broker_id
        self._nameservers = nameservers
        self._broker_name = broker_name
        self._cluster_name = cluster_name
        self._address = address
        self._content = content
        self._pool = ConnectionPool(tls=tls)
        self._unreachable: set[str] = set()
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Register for the first time, and periodically from now on."""
        await self.refresh()
        self._keeper = spawn(self._keep_registered(), name="register at nameservers")

    async def refresh(self) -> None:
        """Register everywhere now; log unreachable nameservers and try again later.

        Nameservers of 5.x treat a single topic as an addition, and refuse it from a broker that
        they do not know yet. A broker's own topics are always included in *content*.
        """
        body = self._content().to_json()
        header = RegisterBrokerHeader(
            broker_name=self._broker_name,
            broker_addr=self._address,
            cluster_name=self._cluster_name,
            broker_id=self._broker_id,
            ha_server_addr=self._address,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        await self._ask_all(RequestCode.REGISTER_BROKER, header, body)

    async def close(self) -> None:
        """Unregister this broker at the nameservers that can be reached."""
        await cancel_and_wait(self._keeper)
        header = BrokerHeader(
            broker_name=self._broker_name,
            broker_addr=self._address,
            cluster_name=self._cluster_name,
            broker_id=self._broker_id,
        )
        await self._ask_all(RequestCode.UNREGISTER_BROKER, header)
        await self.disconnect()

    async def disconnect(self) -> None:
        """Stop without unregistering."""
        await cancel_and_wait(self._keeper)
        await self._pool.close()

    async def _keep_registered(self) -> None:
        while True:
            await asyncio.sleep(_AGAIN_S if self._unreachable else _EVERY_S)
            await self.refresh()

    async def _ask_all(self, code: RequestCode, header: MemberHeader, body: bytes = b"") -> None:
        await asyncio.gather(
            *(self._ask(nameserver, code, header, body) for nameserver in self._nameservers)
        )

    async def _ask(
        self, nameserver: str, code: RequestCode, header: MemberHeader, body: bytes
    ) -> None:
        request = RemotingCommand(code, ext=header.to_ext(), body=body)
        try:
            answer = await self._pool.request(nameserver, request, timeout_s=_TIMEOUT_S)
            if answer.code != 0:
                raise BrokerError(answer.code, answer.remark or "", request=request_name(code))
            response = RegisterBrokerResponse.from_ext(answer.ext)
            self.master_address = response.master_addr or self.master_address
        except RemotingError as error:
            if nameserver not in self._unreachable:
                _log.warning(
                    "not registered at nameserver", nameserver=nameserver, reason=str(error)
                )
            self._unreachable.add(nameserver)
        else:
            self._unreachable.discard(nameserver)
