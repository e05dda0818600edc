"""A verdict is recorded for every exception of a handler, whatever it looks like."""

from __future__ import annotations

import math

import pytest

from thin_client.message import Reject, Retry
from thin_client.verdicts import Verdicts
from thrift_idl import consumer


class Unprintable(Exception):
    def __str__(self) -> str:
        return str(self.__dict__["order"])


class BareRetry(Retry):
    def __init__(self) -> None:
        """Without super().__init__()."""


class BareReject(Reject):
    def __init__(self) -> None:
        """Without super().__init__()."""


class OddRetry(Retry):
    def __init__(self, after_s: object) -> None:
        self.after_s = after_s  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("outcome", "nack"),
    [
        (Unprintable(), (None, None, "Unprintable: (its text cannot be shown: KeyError)")),
        (BareRetry(), (None, None, None)),
        (OddRetry("5"), (None, None, None)),
        (OddRetry(-1), (None, None, None)),
        (OddRetry(math.nan), (None, None, None)),
        (Retry(math.inf), (2**31 - 1, None, None)),
        (BareReject(), (None, True, "")),
        (Reject(None), (None, True, "")),
        (Reject(42), (None, True, "42")),
        (Reject(ValueError("no such customer")), (None, True, "no such customer")),
        (Reject(Unprintable()), (None, True, "(its text cannot be shown: KeyError)")),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, Exception) else "",
)
def test_no_exception_of_a_handler_prevents_its_verdict(
    outcome: Exception, nack: tuple[int | None, bool | None, str | None]
) -> None:
    """Otherwise it would end the handler's thread or task, and its message would stay leased."""
    verdicts = Verdicts()
    verdicts.add(("orders", "q"), consumer.Context(), 1, outcome, 10, 0)

    ((sent,),) = [batch.nacked or [] for batch in verdicts.batches()]
    assert (sent.retryAfterMs, sent.reject, sent.reason) == nack
