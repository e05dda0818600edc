"""Telling the nameservers what this broker has, at the start, every 30 s and when it changes.

A slave learns by it where its master is.
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
    """Keeps one broker registered. *content* is what is registered now."""

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
        #: Where the master of this slave is, as a nameserver said last; None if none ever did.
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
        """Register for the first time, and from now on again and again."""
        await self.refresh()
        self._keeper = spawn(self._keep_registered(), name="register at nameservers")

    async def refresh(self) -> None:
        """Register everywhere now; nameservers out of reach are logged and tried again later.

        Nameservers of 5.x take one topic alone for an addition, and refuse it from a broker that
        they do not know yet. A broker's own topics are always among those of *content*.
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
        """Take this broker off the nameservers, as far as they can be reached."""
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
        """Stop without a word to the nameservers."""
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
            told = RegisterBrokerResponse.from_ext(answer.ext)
            self.master_address = told.master_addr or self.master_address
        except RemotingError as error:
            if nameserver not in self._unreachable:
                _log.warning("nameserver not told", nameserver=nameserver, reason=str(error))
            self._unreachable.add(nameserver)
        else:
            self._unreachable.discard(nameserver)
