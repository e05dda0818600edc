"""The one interpretation of a Thrift call, which authorization and service share. No I/O.

Each call is interpreted once: its group, its topics, the places of its verdicts and the topics of
its sends become one value. The gate asks for the rights that this value needs, and the service
serves this value, so neither can read a request differently from the other. An empty name is never
a wildcard: it is refused. Only an absent name means all topics of the group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from broker_core.errors import InvalidCommand
from broker_core.remoting.half_place import HalfPlace
from broker_core.remoting.recall_handle import RecallHandle
from proxy.core.access.rights import Access, Right
from proxy.downstream.port.connection import Reply
from proxy.errors import Refused

#: The topics of a group, for requests that name no topic.
TopicsOf = Callable[[str], Sequence[str]]

#: ``DelayMessage.action`` of a cancellation.
CANCEL = 2

#: Attributes of classes take longer to look up.
_PULL = Right.PULL


#: The group and topic that a verdict or a lease extension addresses.
Place = tuple[str, str]

_NO_PLACES: frozenset[Place] = frozenset()


class Interpretation(NamedTuple):
    """The meaning of a call.

    Args:
        right: The right that it needs.
        group: The requested group; None if only ``topics``, ``places`` or ``sends`` are concerned.
        topics: The named topics, each once; None: all topics of the group, if there is one.
        places: Where its verdicts apply.
        sends: The topic of each sent message, in order; empty for a message without one.
        granted: The topics that a call without ``topics`` may get; None: no rule limits them.
    """

    right: Right
    group: str | None = None
    topics: tuple[str, ...] | None = None
    places: frozenset[Place] = _NO_PLACES
    sends: tuple[str, ...] = ()
    granted: frozenset[str] | None = None

    def with_granted(self, topics_of: TopicsOf) -> Interpretation:
        """Return the same meaning with its topics fixed to those that the group has now."""
        if self.group is None or self.topics:
            return self
        return self._replace(granted=frozenset(topics_of(self.group)))

    def serves(self, topic: str) -> bool:
        """Return whether the call concerns *topic* of its group."""
        if self.topics is not None:
            return topic in self.topics
        return self.granted is None or topic in self.granted

    def groups(self) -> set[str]:
        """Return the groups that it names."""
        named = {group for group, _ in self.places}
        return named | {self.group} if self.group else named

    def all_topics(self, topics_of: TopicsOf) -> set[str]:
        """Return the topics that it concerns: those that it names, or else those of its group."""
        named = {topic for _, topic in self.places} | {each for each in self.sends if each}
        if self.topics is not None:
            return named.union(self.topics)
        return named.union(topics_of(self.group)) if self.group else named

    def accesses(self) -> Iterator[Access]:
        """Yield the rights that it needs, apart from those of its sends."""
        if self.group is not None:
            topics = self.topics or tuple(sorted(self.granted or ()))
            yield Access(self.right, self.group, topics)
        elif self.topics:
            yield Access(self.right, None, self.topics)
        for group, topic in self.places:
            yield Access(Right.PULL, group, (topic,))


def interpretation_of(reply: Reply, arguments: Any) -> Interpretation:
    """Return the interpretation of the call that *reply* answers: the gate's, if it made one.

    Raises Refused for an empty name, or for names that contradict each other.
    """
    known: Interpretation | None = reply.interpretation
    return _METHODS[reply.call.name](arguments) if known is None else known


def interpret(method: str, arguments: Any) -> Interpretation:
    """Return the interpretation of *arguments*, a generated ``*_args``.

    Raises Refused like ``interpretation_of``, and KeyError for a method without an entry here: add
    one with each new method.
    """
    return _METHODS[method](arguments)


def place_of(context: Any) -> Place | None:
    """Return the place that a Context names; None if it names none, so that it has no effect.

    Raises Refused for a partly empty one. Clients in C++ send an absent Context as empty names.
    """
    if context is None:
        return None
    group, topic, qid = context.groupId, context.topic, context.qid
    if group and topic and qid:  # the usual case
        return group, topic
    if not (group or topic or qid):
        return None
    for name in ("groupId", "topic", "qid"):
        if getattr(context, name) == "":
            raise Refused(
                f"a verdict's context has an empty {name}: return the context of the answer"
                " unchanged"
            )
    if group is None or topic is None:
        return None
    return group, topic


def topic_of_delay(message: Any) -> str:
    """Return the topic of a DelayMessage. A cancellation concerns the topic in its handle,
    whichever topic it names; an invalid handle has none.
    """
    if message is None:
        return ""
    if message.action == CANCEL:
        try:
            return RecallHandle.from_text(message.uniqDelayMsgId or "").topic
        except InvalidCommand:
            pass
    return message.topic or ""


# ---- the methods --------------------------------------------------------------------------------


def _pull(arguments: Any) -> Interpretation:
    request = arguments.request
    if request is None:
        return Interpretation(Right.PULL)
    if request.topic is not None and request.topics is not None:
        raise Refused("a pull sets both topic and topics: set only one")
    topics = None
    if request.topic is not None:
        topics = _named("topic", [request.topic])
    elif request.topics:
        topics = _named("topics", request.topics)
    places, acks = _NO_PLACES, request.acks
    if request.result is not None or (acks and len(acks) > 1):
        places = _places(request.result, acks)
    elif acks and (place := place_of(acks[0].context)) is not None:  # the usual case
        places = frozenset((place,))
    return Interpretation(_PULL, request.groupId or "", topics, places)


def _submit(arguments: Any) -> Interpretation:
    return Interpretation(Right.PULL, places=_places(arguments.result, None))


def _settle(arguments: Any) -> Interpretation:
    acks = () if arguments.request is None else arguments.request.acks
    return Interpretation(Right.PULL, places=_places(None, acks))


def _extend(arguments: Any) -> Interpretation:
    leases = () if arguments.request is None else arguments.request.leases or ()
    return Interpretation(Right.PULL, places=_places(None, leases))


def _stats(arguments: Any) -> Interpretation:
    request = arguments.request
    if request is None:
        return Interpretation(Right.PULL)
    topics = None if request.topic is None else _named("topic", [request.topic])
    return Interpretation(Right.PULL, request.group or "", topics)


def _fetch(arguments: Any) -> Interpretation:
    request = arguments.request
    return _bulk(request, "fetchOffset", None if request is None else request.fetchOffset)


def _ack(arguments: Any) -> Interpretation:
    request = arguments.result
    return _bulk(request, "offsets", None if request is None else request.offsets)


def _ranges(arguments: Any) -> Interpretation:
    request = arguments.request
    if request is None:
        return Interpretation(Right.BULK)
    return Interpretation(Right.BULK, request.groupId or "", _named("topics", request.topics or ()))


def _topics(arguments: Any) -> Interpretation:
    """The service answers with those topics that the caller may read."""
    if arguments.request is not None and not arguments.request.groupId:
        raise Refused("topics has an empty groupId: name a group")
    return Interpretation(Right.BULK)


def _report(arguments: Any) -> Interpretation:
    request = arguments.request
    if request is None:
        return Interpretation(Right.BULK)
    meaning = _bulk(request, "offsets", request.offsets)
    counted = [*(request.lost or ()), *(request.skipped or ()), *(request.repeated or ())]
    topics = _named("a count of report", [*(meaning.topics or ()), *counted])
    return meaning._replace(topics=topics or None)


def _bulk(
    request: Any, field: str, offsets: Mapping[str, Mapping[str, int]] | None
) -> Interpretation:
    if request is None:
        return Interpretation(Right.BULK)
    topics = _named(field, offsets) if offsets else None
    for queues in (offsets or {}).values():
        if "" in queues:
            raise Refused(f"{field} names a queue that is empty: name queues such as broker-a_0")
    return Interpretation(Right.BULK, request.groupId or "", topics)


def _send(arguments: Any) -> Interpretation:
    return _sends([arguments.message])


def _send_batch(arguments: Any) -> Interpretation:
    return _sends(arguments.messages or [])


def _sends(messages: Iterable[Any]) -> Interpretation:
    topics = tuple("" if each is None else each.topic or "" for each in messages)
    return Interpretation(Right.PRODUCE, sends=topics)


def _send_encoded(arguments: Any) -> Interpretation:
    return _sends([arguments.batch])


def _send_delay(arguments: Any) -> Interpretation:
    return Interpretation(Right.PRODUCE, sends=(topic_of_delay(arguments.delayMessage),))


def _writable_queues(arguments: Any) -> Interpretation:
    topic = "" if arguments.request is None else arguments.request.topic or ""
    return Interpretation(Right.PRODUCE, sends=(topic,))


def _prepare(arguments: Any) -> Interpretation:
    request = arguments.request
    message = None if request is None else request.message
    return _of_producers(request and request.group, [(message and message.topic) or ""])


def _end(arguments: Any) -> Interpretation:
    """An invalid transaction has no topic: the service refuses it."""
    try:
        place = HalfPlace.from_text((arguments.request and arguments.request.transaction) or "")
    except InvalidCommand:
        return Interpretation(Right.PRODUCE)
    return _of_producers(place.group, [place.topic])


def _transaction_checks(arguments: Any) -> Interpretation:
    """The service hands out messages of these topics only."""
    request = arguments.request
    topics = () if request is None else request.topics or ()
    return _of_producers(request and request.group, _named("topics", topics))


def _of_producers(group: str | None, topics: Sequence[str]) -> Interpretation:
    """Return the meaning of a call about transactions of a producer group: one rule has to match
    both the group and the topic. The service refuses a call without a topic.
    """
    if not any(topics):
        return Interpretation(Right.PRODUCE)
    return Interpretation(Right.PRODUCE, group or "", tuple(topics))


def _named(field: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct *names*. Raises Refused for an empty one."""
    distinct = tuple(dict.fromkeys(names))
    if "" in distinct:
        raise Refused(f"{field} has an empty name: name a topic, or leave the field out")
    return distinct


def _places(result: Any, others: Sequence[Any] | None) -> frozenset[Place]:
    """Return the places in the chain *result*, and in *others*, which have a context each."""
    places = {place_of(each.context) for each in others or ()}
    while result is not None:
        places.add(place_of(result.context))
        result = result.nextResult
    places.discard(None)
    return frozenset(cast(set[Place], places))


_METHODS: Mapping[str, Callable[[Any], Interpretation]] = {
    "pull": _pull,
    "submit": _submit,
    "settle": _settle,
    "extend": _extend,
    "getConsumeStats": _stats,
    "fetch": _fetch,
    "ack": _ack,
    "ranges": _ranges,
    "topics": _topics,
    "report": _report,
    "sendSync": _send,
    "sendAsync": _send,
    "sendBatchSync": _send_batch,
    "sendEncoded": _send_encoded,
    "sendDelaySync": _send_delay,
    "prepareTransaction": _prepare,
    "endTransaction": _end,
    "transactionChecks": _transaction_checks,
    "writableQueues": _writable_queues,
}
