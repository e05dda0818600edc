"""Response code and remark of a send, by the durability of the stored message."""

from __future__ import annotations

from broker_core.remoting.codes import ResponseCode
from broker_core.store.pending import Kept

#: Code and remark, as RocketMQ's; the message is stored with each of them.
ANSWERS = {
    Kept.WELL: (ResponseCode.SUCCESS, None),
    Kept.ALONE: (ResponseCode.SLAVE_NOT_AVAILABLE, "stored, but too few replicas are connected"),
    Kept.UNSURE: (
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        "stored, but not confirmed by replicas in time",
    ),
}
