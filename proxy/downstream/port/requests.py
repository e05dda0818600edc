"""Converts between Thrift structs and the proxy's core. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, cast

from broker_core.errors import BrokerError, RemotingError
from broker_core.names import Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.message import (
    KEYS,
    RESERVED_PROPERTIES,
    TAGS,
    UNIQ_KEY,
    decode_properties,
)
from proxy.core.dead_letters.redriven import FIRST_ID, MARKS, is_marked
from proxy.core.group.group_buffer import Batch, PullWish
from proxy.core.group.group_figures import GroupFigures
from proxy.core.keys.ids import LeaseId
from proxy.core.keys.order_key import QUEUE_CHAIN
from proxy.core.leases.lease_book import Holder, Lease
from proxy.core.leases.verdicts import Nack
from proxy.downstream.port.interpretation import Interpretation
from proxy.downstream.port.replays import RequestName
from proxy.errors import Forbidden, NotAllowed, Overloaded, Refused, Unavailable, UnknownName
from proxy.settings.groups import GroupSettings
from thrift_idl import consumer

#: Default batch size of pulls without orderlane's fields: DDMQ's own.
DDMQ_BATCH = 8
#: Bounds for the wait of a pull. DDMQ's clients have socket timeouts of 2 s (Go) and 5 s (Java).
MIN_LINGER_MS, MAX_LINGER_MS, DDMQ_MAX_LINGER_MS = 20, 30_000, 1_500
#: Longest kept client name and reason, in characters; the rest is cut off.
MAX_TEXT = 256

#: Verdicts per request, over all its contexts.
MAX_VERDICTS = 100_000

#: Codes of a PullException: invalid or unsupported request; missing or unknown token; forbidden;
#: unknown group or topic; broker failure or limit reached.
REFUSED, NOT_ALLOWED, FORBIDDEN, UNKNOWN_NAME, UNAVAILABLE = 400, 401, 403, 404, 503

#: Contexts kept, of some hundred bytes each: more than a proxy has queues in nearly all cases.
_KEPT_CONTEXTS = 4096

_OUR_FIELDS = (
    "acks",
    "requestId",
    "clientId",
    "maxRun",
    "manyQueues",
    "token",
    "topics",
    "figures",
)

#: The context of verdicts without one: they have no effect.
NO_CONTEXT = consumer.Context()
#: Positional, with text as bytes, which the stub does not declare.
_MESSAGE = cast(Callable[..., consumer.Message], consumer.Message)
#: Contexts of answers, by group, topic and queue with period: the same in answer after answer.
_context = lru_cache(_KEPT_CONTEXTS)(cast(Callable[..., consumer.Context], consumer.Context))
#: Positional: names of arguments double the cost of a struct.
_RESPONSE = cast(Callable[..., consumer.PullResponse], consumer.PullResponse)

_NAMED = (KEYS, TAGS, UNIQ_KEY)
#: Possessive, as nothing else can match: a quarter faster.
_VALUE, _END = "[^\x01\x02]++", "(?:\x02|\\Z)"
_USUAL = ("WAIT", "MSG_REGION", "TRACE_ON", "CLUSTER")  # the most frequent ones first
_OTHERS = "|".join([*_USUAL, *sorted(RESERVED_PROPERTIES.difference(_NAMED, _USUAL))])
_ENTRIES = [*(f"{name}\x01({_VALUE}){_END}" for name in _NAMED), f"(?:{_OTHERS})\x01{_VALUE}{_END}"]
#: Encoded properties without any of the application's, the usual case: the regular expression's
#: groups are the producer's key, tag and message id. The codec accepts text as bytes, so none is
#: decoded.
_none_of_users = re.compile(f"(?:{'|'.join(_ENTRIES)})*+\\Z".encode()).match


def refusal(error: Exception) -> consumer.PullException:
    """Return the PullException for *error*; the IDL defines the codes."""
    passing = isinstance(error, RemotingError | Overloaded | Unavailable)
    code = UNAVAILABLE if passing else REFUSED
    if isinstance(error, NotAllowed):
        code = FORBIDDEN if isinstance(error, Forbidden) else NOT_ALLOWED
    unknown_topic = isinstance(error, BrokerError) and error.code == ResponseCode.TOPIC_NOT_EXIST
    if isinstance(error, UnknownName) or unknown_topic:
        code = UNKNOWN_NAME
    return consumer.PullException(code=code, message=str(error))


def uses_our_fields(request: Any) -> bool:
    """Return whether a PullRequest comes from an orderlane client rather than DDMQ's."""
    return any(getattr(request, name) is not None for name in _OUR_FIELDS)


def request_name(request: Any) -> RequestName | None:
    """Return the name for repeating the answer to a PullRequest; None if it has no request id.

    Raises Refused for an id that is too long or has no client id.
    """
    if not request.requestId:
        return None
    if not request.clientId:
        raise Refused("requestId requires clientId: set both, or neither")
    if len(request.requestId) > MAX_TEXT:
        raise Refused(f"requestId is longer than {MAX_TEXT} characters")
    client = request.groupId or "", request.clientId[:MAX_TEXT]
    return RequestName(client, request.requestId)


def linger_ms(request: Any, *, ours: bool) -> int:
    """Return how long a pull waits for messages, in ms."""
    longest = MAX_LINGER_MS if ours else DDMQ_MAX_LINGER_MS
    return min(max(request.maxLingerTime or 0, MIN_LINGER_MS), longest)


def wish_of(
    request: Any,
    asked: Interpretation,
    *,
    group: GroupSettings,
    delivers: bool,
    ours: bool,
    connection: int,
    max_bytes: int,
) -> PullWish:
    """Convert a PullRequest for *group*, interpreted as *asked*, within the limits of its topics.
    *delivers*: the proxy delivers topics of the group itself.

    Raises Refused if it names a topic that the proxy delivers itself.
    """
    topics = None
    if asked.topics is not None or asked.granted is not None or delivers:
        topics = _pulled_topics(asked, group)
    jobs = request.maxBatchSize or 0
    if jobs <= 0:
        jobs = _largest_batch(group, topics) if ours else DDMQ_BATCH
    return PullWish(
        holder_of(request, connection, extends=ours),
        None if topics is None else frozenset(map(Topic, topics)),
        jobs,
        max_bytes,
        bool(request.manyQueues),
        request.maxRun or 1,
    )


def holder_of(request: Any, connection: int, *, extends: bool = True) -> Holder:
    """Return the client of a PullRequest or AckRequest; *extends*: it can extend leases."""
    client = (request.clientId or f"connection-{connection}")[:MAX_TEXT]
    return Holder(connection, client, getattr(request, "requestId", None) or None, extends)


def note_figures(
    of_group: GroupFigures, reported: consumer.ClientFigures, holder: Holder, *, now_ns: int
) -> None:
    """Add what the client of a pull reports."""
    of_group.note(
        holder.client,
        holder.connection,
        handlers=reported.handlers or 0,
        prefetch=reported.prefetch or 0,
        handling=reported.handling or {},
        round_trips=reported.roundTrips or {},
        now_ns=now_ns,
    )


def _pulled_topics(asked: Interpretation, group: GroupSettings) -> list[str]:
    """Return the topics that a pull may get. Raises Refused if the proxy delivers them."""
    wanted = None if asked.topics is None else list(asked.topics)
    served = asked.granted if wanted is None else frozenset(wanted)  # None: all
    delivered = {topic.name: topic.delivery for topic in group.topics if topic.delivery is not None}
    pulled = [
        topic.name
        for topic in group.topics
        if topic.name not in delivered and (served is None or topic.name in served)
    ]
    for name in wanted or ([] if pulled else list(delivered)[:1]):
        if (settings := delivered.get(name)) is not None:
            raise Refused(
                f"topic {name!r} of group {group.name!r} is delivered by the proxy itself"
                f" ({settings.kind}): pull in another group, or take that action out"
            )
    return wanted or pulled


def _largest_batch(group: GroupSettings, topics: Collection[str] | None) -> int:
    names = None if topics is None else frozenset(topics)
    wanted = [topic for topic in group.topics if names is None or topic.name in names]
    return max(topic.max_pull_batch for topic in wanted)


def refuse_floods(*, result: Any = None, acks: Collection[Any] | None = None) -> None:
    """Raise Refused for more verdicts than a client can hold leases: a frame could contain
    millions, which would delay all other clients.
    """
    count = 0
    while result is not None:
        count += len(result.successOffsets or ()) + len(result.failOffsets or ())
        result = result.nextResult
    for batch in acks or ():
        count += 1
        for each in (batch.acked, batch.nacked, batch.released):
            if each is not None:
                count += len(each)
    if count > MAX_VERDICTS:
        raise Refused(f"{count} verdicts in one request: the limit is {MAX_VERDICTS}")


def links_of(result: Any) -> Iterator[Any]:
    """Yield the links of a ConsumeResult chain."""
    while result is not None:
        yield result
        result = result.nextResult


def nacks_of(nacks: Iterable[Any] | None) -> list[Nack]:
    """Convert the nacks of an AckBatch."""
    return [_nack(nack) for nack in nacks] if nacks else []


def pull_response(
    batches: list[Batch], *, group: str, ours: bool, home: str, waited: bool = False
) -> consumer.PullResponse:
    """Return the answer with *batches*; without any it has an empty Context and an empty list.

    *waited*: the pull waited for them.
    """
    told = True if waited and ours else None
    if not batches:
        return consumer.PullResponse(context=consumer.Context(), messages=[], waited=told)
    more = None
    if len(batches) > 1:
        more = [_one_queue(batch, None, group, ours, home) for batch in batches[1:]]
    return _one_queue(batches[0], more, group, ours, home, told)


def user_properties(properties: Mapping[str, str]) -> dict[str, str] | None:
    """Return the application's own properties of a message; None without any."""
    if properties.keys() <= RESERVED_PROPERTIES:
        return None
    own = {name: text for name, text in properties.items() if name not in RESERVED_PROPERTIES}
    if FIRST_ID in own and is_marked(properties):
        own = {name: text for name, text in own.items() if name not in MARKS}
    return own or None


def _one_queue(
    batch: Batch,
    more: list[consumer.PullResponse] | None,
    group: str,
    ours: bool,
    home: str,
    waited: bool | None = None,
) -> consumer.PullResponse:
    pipeline, leases = batch
    context = _context(group, pipeline.topic, pipeline.qid)
    chain = pipeline.chain_at_clients if ours else None
    messages = _messages(leases, chain)
    if not ours:
        return _RESPONSE(context, messages, more)
    return _RESPONSE(context, messages, more, pipeline.visibility_ns // 1_000_000, home, waited)


def _messages(leases: Iterable[Lease], chain: bytes | None) -> list[consumer.Message]:
    """Return the messages of *leases*. *chain*: the order key of messages without a key of their
    own; None: the client knows none of our fields.
    """
    messages = []
    for lease in leases:
        job = lease.job
        stored = job.message
        if stored is None:
            raise RuntimeError(f"{job} is leased without its message")
        body = stored.body if lease.made_body is None else lease.made_body
        raw = stored.raw_properties
        plain = _none_of_users(raw) if raw.isascii() else None
        key: Any
        if plain is not None:
            own = None
            key, tag, name = plain.groups()
        else:
            properties = decode_properties(raw)  # not cached: a message stores its properties once
            own = user_properties(properties)
            key, tag, name = properties.get(KEYS), properties.get(TAGS), properties.get(UNIQ_KEY)
        if chain is None:
            messages.append(_MESSAGE(key, body, tag, job.offset, own))
            continue
        name = name or stored.offset_message_id
        order_key = chain if job.key == QUEUE_CHAIN else job.key
        of_lease = lease.lease_id, job.attempts, stored.born_ms, order_key, name
        messages.append(_MESSAGE(key, body, tag, job.offset, own, *of_lease))
    return messages


def _nack(nack: Any) -> Nack:
    after = nack.retryAfterMs
    return Nack(
        lease_id=LeaseId(nack.leaseId or 0),
        retry_after_ms=None if after is None else max(0, after),
        reject=bool(nack.reject),
        reason=(nack.reason or "")[:MAX_TEXT],
    )
