"""Resets of offsets by a broker, which RocketMQ's own consumers obey and the proxy does not: by a
request (220), or from 5.0 on in the answer to a pull.
"""

from __future__ import annotations

import structlog

from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName
from broker_core.remoting.codes import RequestCode, ResponseCode, request_name
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


def reset_ignored(group: Group, queue: QueueName, *, to: int) -> BrokerError:
    """Log why nothing changes, and return the error of the pull that was answered with a reset *to*
    another offset. The broker answers the next pull as usual.
    """
    _log.warning(
        "a broker was asked to reset an offset, which the gateway does by 'orderlane offsets reset'"
        " alone; reading goes on where it was",
        group=group,
        queue=str(queue),
        offset=to,
    )
    return BrokerError(
        ResponseCode.SYSTEM_BUSY,
        f"a reset of {queue} to offset {to} is ignored: pull again",
        request=request_name(RequestCode.PULL_MESSAGE),
    )
