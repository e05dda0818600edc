"""Headers of transactions: END_TRANSACTION (37) and CHECK_TRANSACTION_STATE (39). Pure.

Source: ``EndTransactionRequestHeader`` and ``CheckTransactionStateRequestHeader`` of Apache
RocketMQ (4.9.8, 5.3.3); ``topic`` and ``bname`` are of 5.x and may be absent.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.remoting.header_fields import Header, Int32


class End:
    """Values of ``commit_or_rollback``."""

    UNKNOWN = 0
    COMMIT = 8
    ROLLBACK = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionHeader(Header):
    """Code 37: the outcome of a half message, given by two positions.

    ``tran_state_table_offset`` is its offset in the queue of half messages, ``commit_log_offset``
    its physical offset.
    """

    producer_group: str
    tran_state_table_offset: int
    commit_log_offset: int
    commit_or_rollback: Int32  # see End
    from_transaction_check: bool = False  # it answers 39
    msg_id: str | None = None
    transaction_id: str | None = None
    topic: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckTransactionHeader(Header):
    """Code 39, broker to producer. The body is the half message with its real topic and queue."""

    tran_state_table_offset: int
    commit_log_offset: int
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    topic: str | None = None
    bname: str | None = None
