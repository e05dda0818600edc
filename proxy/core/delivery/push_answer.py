"""Interpretation of a receiver's answer: the result for the message and for the receiver. Pure.

Any 2xx is a success, everything else a failure. With ``by_errno`` the answer may say more, as
DDMQ's receivers do: ``{"errno": N}`` in JSON. A receiver cannot prevent that a message is given up:
a requested delay precedes the next of its ``max_deliveries``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import UTC
from email.utils import parsedate_to_datetime

import orjson

from proxy.core.delivery.push_url import shown

#: DDMQ's numbers: success (two of them), success but send slower, retry in a second.
_OK_NUMBERS = frozenset({0, 1_000_001})
_OK_SLOWER = 1_000_000
_AGAIN, _AGAIN_MS = 1_000_002, 1000
#: Statuses that concern the receiver, not the message.
_BUSY = frozenset({429, 503})


@dataclass(frozen=True, slots=True)
class AnswerRules:
    """Rules for answers. ``reject_on``: statuses for which a retry is useless."""

    by_errno: bool = False
    reject_on: Collection[int] = field(default_factory=frozenset)
    retry_after_max_ms: int = 60_000
    max_bytes: int = 65_536


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer. ``body`` is None if it exceeds the limit of the rules, or was not read."""

    status: int
    content_type: str = ""
    retry_after: str | None = None
    location: str | None = None
    body: bytes | None = b""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Result of an answer. ``failure`` is None on success. ``hold_ms``: time without any requests
    to the receiver; ``slower``: it wants fewer requests.
    """

    failure: str | None = None
    retry_after_ms: int | None = None
    reject: bool = False
    slower: bool = False
    hold_ms: int = 0

    def at(self, place: str) -> Judgement:
        """Return the same result with *place* prepended to its failure."""
        return self if self.failure is None else replace(self, failure=f"{place}: {self.failure}")


def judge(answer: Answer, rules: AnswerRules, *, wall_ms: int) -> Judgement:
    """Return the result of *answer* at the wall time *wall_ms* (since 1970)."""
    status = answer.status
    if 200 <= status < 300:
        return _by_errno(answer, rules) if rules.by_errno else Judgement()
    reason = f"HTTP status {status}"
    if 300 <= status < 400:
        place = f" to {shown(answer.location)}" if answer.location else ""
        reason += f": a redirect{place}, and redirects are not followed"
    if status in rules.reject_on:
        return Judgement(reason, reject=True)
    wait_ms = _wait_ms(answer.retry_after, wall_ms)
    if wait_ms is None or status < 400:
        return Judgement(reason, slower=status == 429)
    wait_ms = min(wait_ms, rules.retry_after_max_ms)
    hold_ms = wait_ms if status in _BUSY else 0
    return Judgement(reason, retry_after_ms=wait_ms, hold_ms=hold_ms)


def _by_errno(answer: Answer, rules: AnswerRules) -> Judgement:
    if answer.body is None:
        return Judgement(f"the answer exceeds {rules.max_bytes} bytes, with answer: errno")
    if not answer.body.strip():
        return Judgement()
    try:
        value = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        if _is_json(answer.content_type):
            return Judgement("the answer is declared as JSON but is not valid JSON")
        return Judgement()
    errno = value.get("errno") if isinstance(value, dict) else None
    if errno is None or (type(errno) is int and errno in _OK_NUMBERS):
        return Judgement()
    if type(errno) is not int:
        return Judgement(f"the answer's errno is not a whole number: {shown(str(errno))}")
    if errno == _OK_SLOWER:
        return Judgement(slower=True)
    return Judgement(_errno_reason(value), retry_after_ms=_AGAIN_MS if errno == _AGAIN else None)


def _errno_reason(value: dict[str, object]) -> str:
    message = value.get("errmsg")
    said = f" ({shown(message)})" if isinstance(message, str) and message else ""
    return f"errno {value['errno']}{said}"


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def _wait_ms(retry_after: str | None, wall_ms: int) -> int | None:
    """Return ``Retry-After``, in seconds or a date, as ms; None if it is missing or invalid."""
    if retry_after is None:
        return None
    text = retry_after.strip()
    if text.isascii() and text.isdigit():
        return int(text[:9]) * 1000
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return max(0, int(at.timestamp() * 1000) - wall_ms)
