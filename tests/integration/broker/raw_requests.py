"""Raw commands to a broker, for requests that our own client never sends."""

from __future__ import annotations

from broker_core.client.connection_pool import ConnectionPool
from broker_core.names import Group, Topic
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.headers import PullMessageHeader, SendMessageHeader
from broker_core.remoting_channel import Handler
from testkit.broker_process import Cluster

TOPIC = Topic("orders")
GROUP = Group("billing")


class Raw:
    """One connection to the broker."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._handlers: dict[int, Handler] = {}
        self.pool = ConnectionPool(handlers=self._handlers)

    def serve(self, code: int, handler: Handler) -> None:
        """Let *handler* answer the broker's requests with *code*."""
        self._handlers[code] = handler

    async def ask(
        self, code: int, ext: dict[str, str] | None = None, body: bytes = b"", **more: object
    ) -> RemotingCommand:
        request = RemotingCommand(code, ext=ext or {}, body=body, **more)  # type: ignore[arg-type]
        return await self.pool.request(self.cluster.broker_address, request, timeout_s=20)

    async def pull(self, **fields: object) -> RemotingCommand:
        header = PullMessageHeader(
            **{  # type: ignore[arg-type]
                "consumer_group": GROUP, "topic": TOPIC, "queue_id": 0, "queue_offset": 0,
                "max_msg_nums": 32, "sys_flag": 4, "commit_offset": 0,
                "suspend_timeout_millis": 0, "subscription": "*", "sub_version": 0, **fields,
            }
        )  # fmt: skip
        return await self.ask(RequestCode.PULL_MESSAGE, header.to_ext())


def send_header(**fields: object) -> SendMessageHeader:
    return SendMessageHeader(
        **{  # type: ignore[arg-type]
            "producer_group": "p", "topic": TOPIC, "queue_id": 0, "born_timestamp": 5, **fields,
        }
    )  # fmt: skip
