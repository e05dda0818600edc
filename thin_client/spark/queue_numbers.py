"""Queues by number, like Kafka's partitions: the ``0`` of ``broker-a_0``. Pure.

Each broker counts its queues from 0, so a number names a queue only in a topic of a single broker.
"""

from __future__ import annotations

from collections.abc import Iterable

from thin_client.spark.option_values import OptionError, names


def number_of(qid: str) -> str:
    """Return the number at the end of a queue's name; *qid* itself if it is a number."""
    return qid.rpartition("_")[2]


def is_number(qid: str) -> bool:
    """Return whether *qid* is a number instead of a queue's name."""
    return qid.isascii() and qid.isdecimal()


def check_one_broker(what: str, topic: str, qids: Iterable[str], *, instead: str) -> None:
    """Raise OptionError if *qids*, all queues of *topic*, are at several brokers.

    *what* uses the numbers; *instead* is an imperative.
    """
    brokers = {qid.rpartition("_")[0] for qid in qids if not is_number(qid)}
    if len(brokers) > 1:
        raise OptionError(
            f"{what} cannot number the queues of the topic {topic!r}, because it has some at each"
            f" of the brokers {names(brokers)}: {instead}"
        )
