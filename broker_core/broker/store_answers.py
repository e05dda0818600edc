"""Response code and remark of a send, by the durability of the stored message."""

from __future__ import annotations

from broker_core.errors import UNCONFIRMED, BrokerError
from broker_core.remoting.codes import ResponseCode
from broker_core.store.pending import Kept

#: Code and remark, as RocketMQ's; the message is stored with each of them. Clients take 11 and 12
#: for success, so an elected master answers an error: without a majority the message may be lost.
ANSWERS = {
    Kept.WELL: (ResponseCode.SUCCESS, None),
    Kept.ALONE: (ResponseCode.SLAVE_NOT_AVAILABLE, "stored, but too few replicas are connected"),
    Kept.UNSURE: (
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        "stored, but not confirmed by replicas in time",
    ),
    Kept.UNCONFIRMED: (
        ResponseCode.SYSTEM_ERROR,
        f"{UNCONFIRMED}: the change may be kept or lost; repeat the request",
    ),
}


def check_confirmed(kept: Kept) -> None:
    """Raise BrokerError for a change that the next elected master may not have.

    For requests whose answers know success only: other shortages of replicas count as success.
    """
    if kept is Kept.UNCONFIRMED:
        code, remark = ANSWERS[kept]
        raise BrokerError(code, remark or "")
