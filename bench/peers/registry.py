"""The peers by the names that ``orderlane bench CASE --vs`` takes."""

from __future__ import annotations

from collections.abc import Mapping

from bench.frame.peer import Peer
from bench.peers.orderlane_java import OrderlaneJavaPeer
from bench.peers.parallel_consumer import ParallelConsumerPeer
from bench.peers.pulsar import PulsarPeer
from bench.peers.rocketmq import RocketmqPeer
from bench.peers.rocketmq_proxy import RocketmqProxyPeer
from testkit.rocketmq import VERSIONS

PEERS: Mapping[str, Peer] = {
    "rocketmq-orderly": RocketmqPeer("orderly"),
    "rocketmq-concurrent": RocketmqPeer("concurrently"),
    "rocketmq-proxy": RocketmqProxyPeer(),
    "parallel-consumer": ParallelConsumerPeer("KEY"),
    "parallel-consumer-partition": ParallelConsumerPeer("PARTITION"),
    "parallel-consumer-unordered": ParallelConsumerPeer("UNORDERED"),
    "pulsar-key-shared": PulsarPeer(),
    "orderlane-java": OrderlaneJavaPeer(),
    "orderlane-java-on-rocketmq": OrderlaneJavaPeer(VERSIONS[0]),
}
