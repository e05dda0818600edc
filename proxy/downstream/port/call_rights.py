"""The rights, groups and topics that a Thrift call requires. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from proxy.core.access.rights import Access, Right

#: The topics of a group, for requests that name no topic.
TopicsOf = Callable[[str], Sequence[str]]


def acts_of(method: str, request: Any, topics_of: TopicsOf) -> Iterator[Access]:
    """Yield the acts of *request*, a generated ``*_args``. Raises KeyError for a method without an
    entry here: add one with each new method.
    """
    return _ACTS[method](request, topics_of)


def _pull(request: Any, topics_of: TopicsOf) -> Iterator[Access]:
    group = request.groupId
    named = [request.topic] if request.topic is not None else request.topics
    yield Access(Right.PULL, group, tuple(named or topics_of(group)))
    yield from _links(request.result, group)
    yield from _contexts(group, (batch.context for batch in request.acks or ()))


def _submit(result: Any, _topics_of: TopicsOf) -> Iterator[Access]:
    yield from _links(result, "")


def _settle(request: Any, _topics_of: TopicsOf) -> Iterator[Access]:
    yield from _contexts(request.groupId, (each.context for each in request.acks or ()))


def _extend(request: Any, _topics_of: TopicsOf) -> Iterator[Access]:
    yield from _contexts(request.groupId, (each.context for each in request.leases or ()))


def _links(result: Any, group: str) -> Iterator[Access]:
    while result is not None:
        yield from _contexts(group, [result.context])
        result = result.nextResult


def _contexts(group: str, contexts: Iterable[Any]) -> Iterator[Access]:
    """Yield the acts of verdicts: each context may name its own group. Without contexts there is no
    act, and no effect.
    """
    named = {(each.groupId or group, each.topic or "") for each in contexts if each is not None}
    for of_group, topic in named:
        yield Access(Right.PULL, of_group, (topic,) if topic else ())


def _stats(request: Any, topics_of: TopicsOf) -> Iterator[Access]:
    topics = (request.topic,) if request.topic else topics_of(request.group)
    yield Access(Right.PULL, request.group, tuple(topics))


def _bulk(places: Callable[[Any], Iterable[str] | None]) -> _Reader:
    def acts(request: Any, topics_of: TopicsOf) -> Iterator[Access]:
        topics = places(request) or topics_of(request.groupId)
        yield Access(Right.BULK, request.groupId, tuple(topics))

    return acts


def _produce(message: Any, _topics_of: TopicsOf) -> Iterator[Access]:
    yield Access(Right.PRODUCE, None, (message.topic or "",))


_Reader = Callable[[Any, TopicsOf], Iterator[Access]]
_ACTS: Mapping[str, _Reader] = {
    "pull": _pull,
    "submit": _submit,
    "settle": _settle,
    "extend": _extend,
    "getConsumeStats": _stats,
    "fetch": _bulk(lambda request: request.fetchOffset),
    "ack": _bulk(lambda request: request.offsets),
    "ranges": _bulk(lambda request: request.topics),
    "sendSync": _produce,
    "sendAsync": _produce,
    "sendBatchSync": _produce,
    "sendDelaySync": _produce,
}
