"""Response code and remark of a write, by the durability of what is stored, or by the error."""

from __future__ import annotations

from broker_core.errors import UNCONFIRMED, BrokerError, MayBeStored
from broker_core.remoting.codes import ResponseCode
from broker_core.store.pending import Kept

_UNKNOWN = "the change may be kept or lost; repeat the request"

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
        f"{UNCONFIRMED}a majority of the replicas in time: {_UNKNOWN}",
    ),
}


def check_confirmed(kept: Kept) -> None:
    """Raise BrokerError for a change that the next elected master may not have.

    For requests whose answers know success only: other shortages of replicas count as success.
    """
    if kept is Kept.UNCONFIRMED:
        code, remark = ANSWERS[kept]
        raise BrokerError(code, remark or "")


def not_written(error: OSError) -> BrokerError:
    """Return the answer to a write that failed with *error*."""
    if isinstance(error, MayBeStored):
        return BrokerError(
            ResponseCode.SYSTEM_ERROR, f"{UNCONFIRMED}the disk ({error.strerror}): {_UNKNOWN}"
        )
    return BrokerError(
        ResponseCode.SERVICE_NOT_AVAILABLE,
        f"the broker cannot write its log now: {error.strerror}",
    )
