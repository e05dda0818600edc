"""Resets of offsets by a broker (220), which RocketMQ's own consumers obey and the proxy does
not.
"""

from __future__ import annotations

import structlog

from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.query_headers import ResetOffsetHeader
from broker_core.remoting_channel import RemotingChannel

_log = structlog.get_logger("client")


def reset_refused(request: RemotingCommand, channel: RemotingChannel) -> None:
    """Log why nothing changes: a gateway's records take precedence over a moved offset."""
    header = ResetOffsetHeader.from_ext(request.ext)
    _log.warning(
        "a broker asks for a reset of offsets, which the gateway does by 'orderlane offsets reset'"
        " alone; nothing is changed",
        broker=channel.peer,
        group=header.group,
        topic=header.topic,
        timestamp_ms=header.timestamp,
    )
