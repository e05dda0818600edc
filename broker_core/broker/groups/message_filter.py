"""The filter of a pull: by the tags or the SQL92 expression of its subscription. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker_core.broker.sql.parser import compile_filter
from broker_core.broker.sql.tokens import BadFilter
from broker_core.errors import BrokerError
from broker_core.names import Topic
from broker_core.remoting.bodies import MAX_EXPRESSION_CHARS, Subscription
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import decode_properties
from broker_core.store.reader import PASSING_ENTRIES

SQL = "SQL92"
#: Messages that a read examines by a filter with up to 32 operands; by a longer one fewer. An
#: operand takes about 0.6 µs, so a read takes about 20 ms at most.
_EXAMINED, _OPERANDS = PASSING_ENTRIES, 32


@dataclass(frozen=True, slots=True)
class Wanted:
    """``tag_hashes``: None for every tag. ``passes``: predicate on encoded properties; None: all.
    ``examined``: most messages that one read may examine by it.
    """

    tag_hashes: frozenset[int] | None = None
    passes: Callable[[bytes], bool] | None = None
    examined: int = _EXAMINED


def wanted_by(subscription: Subscription) -> Wanted:
    """Return the filter of *subscription*.

    Raises BrokerError (23) for an invalid expression, (1) for an unknown kind of filter.
    """
    kind = subscription.expression_type or "TAG"
    if kind == "TAG":
        return Wanted(tag_hashes=subscription.codes or None)
    if kind != SQL:
        raise BrokerError(
            ResponseCode.SYSTEM_ERROR,
            f"this broker filters by expressions of type TAG and {SQL}, not {kind[:80]!r}",
        )
    try:
        test = compile_filter(subscription.expression)
    except BadFilter as error:
        raise BrokerError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"the {SQL} filter {subscription.expression[:200]!r} cannot be read: {error}",
        ) from error
    examined = max(1, _EXAMINED * _OPERANDS // max(_OPERANDS, test.operands))
    return Wanted(passes=lambda raw: test(decode_properties(raw)), examined=examined)


def inline(topic: Topic, expression: str, kind: str | None) -> Subscription:
    """Return the subscription contained in a pull. Raise BrokerError as ``wanted_by``."""
    if len(expression) > MAX_EXPRESSION_CHARS:
        raise BrokerError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"the subscription has {len(expression)} characters: at most {MAX_EXPRESSION_CHARS}",
        )
    if kind and kind != "TAG":
        return Subscription(topic=topic, expression=expression, expression_type=kind)
    wanted = Subscription.of_tags(topic, expression)
    if not wanted.tags and expression.strip() not in ("", "*"):
        raise BrokerError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            f"the subscription {expression[:80]!r} names no tag: expected tags with '||' between,"
            " or * for all",
        )
    return wanted
