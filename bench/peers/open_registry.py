"""The peers under an open load, by the names that ``--vs`` takes in cases without a backlog."""

from __future__ import annotations

from collections.abc import Mapping

from bench.peers.open_load import OpenPeer
from bench.peers.pulsar_site import OpenPulsar
from bench.peers.rocketmq_site import OpenRocketmq, OpenRocketmqProxy

OPEN_PEERS: Mapping[str, OpenPeer] = {
    "rocketmq-orderly": OpenRocketmq(),
    "rocketmq-proxy": OpenRocketmqProxy(),
    "pulsar-key-shared": OpenPulsar(),
}
