"""Apache RocketMQ's own proxy with its gRPC client, and a FIFO group as its documentation
advises: topic with ``message.type=FIFO``, messages with message groups, a group with
``consumeMessageOrderly``.
"""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from bench.frame.context import RunContext
from bench.frame.figures import Figures
from bench.frame.peer import Work
from bench.peers.backlog import backlog_of
from bench.peers.java_programs import (
    PeerFailed,
    client_path,
    consume,
    printed,
    server_path,
    start,
    version_in,
)
from bench.preload import Place
from bench.site import Brokers
from broker_core.remoting import headers
from broker_core.remoting.codes import RequestCode
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.route_bodies import MASTER_ID, ClusterTable
from testkit.processes import wait_until
from testkit.rocketmq import VERSIONS, ask, free_ports, is_free

_READY_S = 120.0
_MAIN = "org.apache.rocketmq.proxy.ProxyStartup"
#: Messages that a client holds; its default.
_CACHE = 1024


@dataclass(frozen=True, slots=True)
class RocketmqProxyPeer:
    """The peer.

    *version*: of broker and proxy. *at_most*: messages of a run; the rest of a longer backlog is
    left out, because a run would take hours at several hundred messages a second.
    """

    version: str = VERSIONS[0]
    at_most: int = 20_000

    @property
    def about(self) -> str:
        """Return one sentence for the document."""
        return (
            f"Apache RocketMQ {self.version}, its proxy (cluster mode) before its own broker, and"
            f" its gRPC push consumer {version_in('rocketmq-proxy')}: FIFO topic, message groups,"
            " a group with consumeMessageOrderly, one thread per handler, and the client's"
            " accelerator, which handles the message groups of a batch in parallel; at most"
            f" {self.at_most:,} messages a run"
        )

    def run(self, context: RunContext, work: Work) -> Figures:
        """Run the work. Raises PeerFailed."""
        class_path = client_path("rocketmq-proxy")
        work = replace(work, messages=min(work.messages, self.at_most))
        group = f"{work.topic}-fifo"
        with context.brokers(self.version) as brokers:
            prepare(brokers, work.topic, group, queues=work.queues)
            place = Place(brokers.nameserver, work.topic, work.queues)
            asyncio.run(backlog_of(work, grouped=True).store(place, history=None))
            with rocketmq_proxy(context.folder / "proxy", brokers.nameserver) as proxy:
                return consume(
                    class_path,
                    "RocketmqProxyPeer",
                    {
                        **consumer_options([proxy], work.concurrency),
                        "topic": work.topic,
                        "group": group,
                    },
                    work=work,
                    folder=context.folder,
                    processes={"broker": brokers.broker_pid, "proxy": proxy.pid},
                    ordered=True,
                )


@dataclass(frozen=True, slots=True)
class RocketmqProxy:
    """A running proxy of Apache RocketMQ."""

    address: str
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid


def consumer_options(proxies: Iterable[RocketmqProxy], concurrency: int) -> dict[str, object]:
    """Return the options of a consumer at *proxies*, preferably the first, with *concurrency*
    handlers, except topic and group.
    """
    return {
        "endpoints": ";".join(each.address for each in proxies),
        "concurrency": concurrency,
        "cache": _CACHE,
        "version": version_in("rocketmq-proxy"),
        "proxy-version": version_in("rocketmq-proxy-server"),
    }


def prepare(brokers: Brokers, topic: str, group: str, *, queues: int) -> None:
    """Create a FIFO topic, and a group that consumes it in order from its first message. Raises
    PeerFailed if the broker refuses.
    """
    brokers.create_topic(topic, queues=queues)
    table = ClusterTable.from_json(
        ask(brokers.nameserver, RemotingCommand(RequestCode.GET_BROKER_CLUSTER_INFO)).body
    )
    [broker] = table.brokers.values()
    for command in fifo_commands(topic, group, queues=queues):
        answer = ask(broker.addresses[MASTER_ID], command)
        if answer.code != 0:
            raise PeerFailed(
                f"RocketMQ's broker refused a FIFO topic or group (request {command.code}):"
                f" {answer.remark}"
            )


def fifo_commands(topic: str, group: str, *, queues: int) -> Iterator[RemotingCommand]:
    """Yield the requests of ``prepare``, in order."""
    fifo = headers.CreateTopicHeader(
        topic=topic,
        read_queue_nums=queues,
        write_queue_nums=queues,
        attributes="+message.type=FIFO",
    )
    yield RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext=fifo.to_ext())
    settings = {
        "groupName": group,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeBroadcastEnable": True,
        "consumeMessageOrderly": True,
        "retryQueueNums": 1,
        "retryMaxTimes": 16,
        "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1,
        "notifyConsumerIdsChangedEnable": True,
    }
    yield RemotingCommand(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=orjson.dumps(settings)
    )
    for queue in range(queues):
        first = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": str(queue),
            "commitOffset": "0",
        }
        yield RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext=first)


def proxy_settings(nameserver: str, *, port: int, remoting_port: int) -> dict[str, object]:
    """Return the proxy's settings: a stateless proxy before other brokers, on loopback."""
    return {
        "rocketMQClusterName": "DefaultCluster",
        "proxyMode": "CLUSTER",
        "namesrvAddr": nameserver,
        "grpcServerPort": port,
        "remotingListenPort": remoting_port,
        "localServeAddr": "127.0.0.1",
    }


@contextmanager
def rocketmq_proxy(folder: Path, nameserver: str) -> Iterator[RocketmqProxy]:
    """Run a proxy. Raises PeerFailed."""
    folder.mkdir(parents=True)
    _, port, remoting_port = free_ports()
    settings = folder / "rmq-proxy.json"
    settings.write_bytes(
        orjson.dumps(proxy_settings(nameserver, port=port, remoting_port=remoting_port))
    )
    path = server_path("rocketmq-proxy-server")
    process = start(path, _MAIN, {}, folder, arguments=["-pc", settings])
    try:

        def serves() -> bool:
            if process.poll() is not None:
                raise PeerFailed(f"RocketMQ's proxy ended; {printed(_MAIN, folder)}")
            return not is_free(port)

        wait_until(serves, within_s=_READY_S, what="RocketMQ's proxy listens")
        yield RocketmqProxy(f"127.0.0.1:{port}", process)
    finally:
        process.kill()
        process.wait()
