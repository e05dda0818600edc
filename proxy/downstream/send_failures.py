"""Result codes of failed sends: DDMQ's, plus two of our own. Pure."""

from __future__ import annotations

from typing import NamedTuple

from broker_core.client import SendReceipt, SendStatus
from broker_core.client.producer import Outcome
from broker_core.client.queue_moves import is_in_doubt
from broker_core.errors import BrokerError, RemotingError, RequestTimeout
from broker_core.names import QueueName
from broker_core.remoting.codes import ResponseCode

OK, UNKNOWN, ILLEGAL, TIMED_OUT, NO_TOPIC, TOO_FAST = 0, 10, 11, 12, 14, 15
NOT_SENT, NOT_ALLOWED = 70, 71  # orderlane's own codes


class Failure(NamedTuple):
    """The failure of a send. ``in_doubt``: the message may be stored."""

    code: int
    reason: str
    in_doubt: bool


def failure_of(outcome: Outcome) -> Failure | None:
    """Return the failure of a send; None if the message is stored and on disk."""
    if isinstance(outcome, SendReceipt):
        return failure_on_disk(outcome.status, outcome.queue)
    return failure_by(outcome)


def failure_by(error: RemotingError) -> Failure:
    """Return the failure of a send that ended with *error*."""
    return Failure(code_of(error), str(error), is_in_doubt(error))


def failure_on_disk(status: SendStatus, queue: QueueName) -> Failure | None:
    """Return the failure of a message that *queue* has stored with *status*; None without one."""
    # The only such status: the message may be lost with the broker.
    if status is not SendStatus.FLUSH_DISK_TIMEOUT:
        return None
    reason = f"{queue}: the message was not flushed to disk in time: send it again"
    return Failure(TIMED_OUT, reason, in_doubt=True)


def code_of(error: RemotingError) -> int:
    """Return the code of a send that ended with *error*: TIMED_OUT or UNKNOWN if it is in doubt."""
    if is_in_doubt(error):
        return TIMED_OUT if isinstance(error, RequestTimeout) else UNKNOWN
    if error.illegal:
        return ILLEGAL
    missing = isinstance(error, BrokerError) and error.code == ResponseCode.TOPIC_NOT_EXIST
    return NO_TOPIC if missing else NOT_SENT


def summary(failed: int, of: int, worst: Failure) -> str:
    """Return the text for *of* messages of which *failed* ones failed, *worst* among them."""
    state = "are not known to be stored" if worst.in_doubt else "were not stored"
    return f"{failed} of {of} messages {state}: {worst.reason}"
