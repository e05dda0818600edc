"""Transactions of thin clients: half messages, their outcomes, and brokers' questions about them.

Nothing is kept here. A transaction is named by its place at its broker, so any proxy can end it; a
question that no client takes is asked again by its broker, perhaps through another proxy. This
proxy is a member of a producer group for as long as clients of the group wait for questions here.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import structlog

from broker_core.client import BrokerClient
from broker_core.client.half_messages import end, place_of_half, prepare
from broker_core.client.producer import DEFAULT_TIMEOUT_S, queue_of
from broker_core.client.producer_groups import ProducerGroups
from broker_core.client.producer_groups import Question as Asked
from broker_core.clock import now_ns
from broker_core.errors import BrokerError, InvalidCommand, NotSent, RemotingError
from broker_core.names import Group, QueueName, Topic, check_name
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.half_place import HalfPlace
from broker_core.remoting.transaction_headers import End
from broker_core.tasks import cancel_and_wait, spawn
from proxy.downstream.outgoing import IllegalMessage, outbound, topic_named
from proxy.downstream.port.connection import Connection, Reply
from proxy.downstream.port.requests import user_properties
from proxy.downstream.send_failures import (
    ILLEGAL,
    OK,
    TIMED_OUT,
    code_of,
)
from proxy.downstream.transaction_checks import Question, TransactionChecks
from proxy.observe.logs import NoisyLog
from thrift_idl import producer, producer_service

_CLOSING, _ENDED = 20, 72
_OUTCOMES = {1: End.COMMIT, 2: End.ROLLBACK}  # by EndRequest.outcome
_WAIT_MS, _MAX_WAIT_MS = 1_000, 30_000
#: A client that does not wait any more is handling questions, or is gone.
_MEMBER_NS = 30_000_000_000
_LOOK_EVERY_S = 1.0
#: Limit of the requests by which this proxy leaves producer groups, in s.
_LEAVE_S = 2.0
_MAX_TOPICS = 100

_log = structlog.get_logger("transactions")


@dataclass(slots=True, eq=False)
class _Poll:
    """A request that waits for questions. Its timer, connection and reply call ``give_up``."""

    group: Group
    topics: frozenset[Topic]
    reply: Reply
    give_up: Callable[[], None]
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class _Member:
    """A client of a producer group, on one connection."""

    group: Group
    topics: frozenset[Topic]
    until_ns: int


class Transactions:
    """Prepares and ends transactions through *client*, and hands out questions about them."""

    def __init__(
        self,
        client: BrokerClient,
        *,
        find_queues: Callable[[Topic], Awaitable[list[QueueName]]],
        max_body_bytes: int,
    ) -> None:
        self._client = client
        self._find_queues = find_queues
        self._max_body_bytes = max_body_bytes
        self._turn = itertools.count()
        self._noisy = NoisyLog(_log)
        self._checks: TransactionChecks[_Poll] = TransactionChecks()
        self._members: dict[Connection, _Member] = {}
        self._joined: dict[Group, frozenset[Topic]] = {}  # as brokers know it
        self._groups: ProducerGroups | None = None
        self._news = asyncio.Event()  # the members have changed
        self._following: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def groups(self) -> frozenset[Group]:
        """The producer groups that this proxy is a member of."""
        return frozenset(self._joined)

    async def close(self) -> None:
        """Answer all waiting requests, and leave all groups: brokers ask other producers."""
        self._closing = True
        for poll in self._checks.all():
            poll.give_up()
        if self._following is None:
            return
        await cancel_and_wait(self._following)
        if self._groups is None:
            return
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._groups.close()
        except TimeoutError:
            _log.info("a broker did not answer; it notices when the connection ends")

    # ---- half messages and outcomes -------------------------------------------------------------

    async def prepare(self, request: Any) -> Any:
        """Store the half message of a PrepareRequest; return its Prepared."""
        try:
            if request is None:
                raise IllegalMessage("the request has no message")
            group = _group_named(request.group)
            sent = outbound(request.message, max_body_bytes=self._max_body_bytes)
            after_s = request.checkAfterS
            if after_s is not None and not after_s >= 0:
                raise IllegalMessage(f"checkAfterS is {after_s}: expected 0 or more seconds")
        except IllegalMessage as error:
            return producer.Prepared(code=ILLEGAL, msg=str(error))

        async def find_queue() -> QueueName:
            queues = await self._find_queues(sent.message.topic)
            if not queues:
                remark = f"topic {sent.message.topic} has no writable queue"
                raise BrokerError(ResponseCode.NO_PERMISSION, remark, request="send")
            return queue_of(sent, queues) or queues[next(self._turn) % len(queues)]

        timeout_s = _timeout_s(request.timeoutMs)
        try:
            receipt = await prepare(
                self._client,
                sent.message,
                find_queue,
                group=group,
                check_after_s=after_s,
                timeout_s=timeout_s,
            )
        except RemotingError as error:
            return producer.Prepared(code=code_of(error), msg=str(error))
        return producer.Prepared(code=OK, transaction=place_of_half(receipt, group).to_text())

    async def end(self, request: Any, *, verify: bool) -> Any:
        """End the transaction of an EndRequest; return its Result.

        *verify*: compare the transaction with the half message, since the rights of the caller
        were checked for the topic that it names.
        """
        try:
            place = HalfPlace.from_text((request and request.transaction) or "")
            topic_named(place.topic)
            outcome = _OUTCOMES.get(request.outcome)
            if outcome is None:
                raise IllegalMessage(
                    f"outcome is {request.outcome}: expected 1 (commit) or 2 (roll back)"
                )
        except (IllegalMessage, InvalidCommand) as error:
            return producer.Result(code=ILLEGAL, msg=str(error))
        timeout_s = _timeout_s(request.timeoutMs)
        try:
            async with asyncio.timeout(timeout_s):
                if verify:
                    await self._verify(place)
                await end(self._client, place, outcome, timeout_s=timeout_s)
        except IllegalMessage as error:
            return producer.Result(code=ILLEGAL, msg=str(error))
        except TimeoutError:
            return producer.Result(code=TIMED_OUT, msg="the broker did not answer in time")
        except BrokerError as error:
            ended = error.code == ResponseCode.SYSTEM_ERROR and not error.says_unconfirmed
            code = _ENDED if ended else code_of(error)
            return producer.Result(code=code, msg=str(error))
        except RemotingError as error:
            return producer.Result(code=code_of(error), msg=str(error))
        return producer.Result(code=OK, msg="OK")

    async def _verify(self, place: HalfPlace) -> None:
        """Raise IllegalMessage if another half message than that of *place* is there; NotSent if
        that is not known.

        If the embedded broker says that none is there, retention deleted it. The broker may have a
        later copy, and compares group, topic and message id itself before it ends it.
        """
        try:
            half = await self._client.queries.at(place.broker, place.log_offset)
        except RemotingError as error:
            if isinstance(error, BrokerError) and error.says_no_message:
                return
            raise NotSent(f"the transaction is not verified: {error}") from None
        own = half.properties
        named = (own.get("REAL_TOPIC"), own.get("PGROUP"), half.message_id)
        if named != (place.topic, place.group, place.message_id):
            raise IllegalMessage("the transaction does not belong to its half message")

    # ---- questions ------------------------------------------------------------------------------

    def wait(self, request: Any, reply: Reply) -> None:
        """Answer a ChecksRequest once a question is there, or its time is up."""
        try:
            if request is None:
                raise IllegalMessage("the request is missing")
            group = _group_named(request.group)
            topics = frozenset(topic_named(each) for each in request.topics or ())
            if not 0 < len(topics) <= _MAX_TOPICS:
                raise IllegalMessage(f"{len(topics)} topics: expected 1 to {_MAX_TOPICS}")
        except IllegalMessage as error:
            _answer(reply, producer.ChecksAnswer(code=ILLEGAL, msg=str(error)))
            return
        if self._closing:
            text = "this proxy is shutting down: continue at another one"
            _answer(reply, producer.ChecksAnswer(code=_CLOSING, msg=text))
            return
        self._note_member(reply.connection, group, topics)
        questions = self._checks.take(group, topics, now_ns=now_ns())
        if questions:
            self._hand_out(group, questions, reply)
            return
        wait_ms = _WAIT_MS if request.maxWaitMs is None else request.maxWaitMs
        self._begin(group, topics, reply, min(max(wait_ms, 0), _MAX_WAIT_MS))

    def _begin(self, group: Group, topics: frozenset[Topic], reply: Reply, wait_ms: int) -> None:
        def give_up() -> None:
            if self._checks.remove(poll):
                _end(poll)
                _answer(reply, producer.ChecksAnswer(code=OK, checks=[]))

        def lost() -> None:
            if self._checks.remove(poll):
                _end(poll)
            self._members.pop(reply.connection, None)
            self._news.set()

        poll = _Poll(group, topics, reply, give_up)
        poll.timer = asyncio.get_running_loop().call_later(wait_ms / 1000, give_up)
        reply.call_if_lost(lost)
        reply.connection.pull_waits(give_up, movable=True)
        self._checks.wait(poll)

    async def _asked(self, asked: Asked) -> None:
        """Pass a broker's question on."""
        broker = asked.header.bname or self._client.broker_behind(asked.channel)
        if broker is None or asked.group not in self._joined:
            _log.debug("question about a transaction dropped", group=asked.group, broker=broker)
            return
        half, group = asked.half, Group(asked.group)
        own = user_properties(half.properties)
        message = producer.Message(
            topic=half.topic, key=half.key, tags=half.tag, body=half.body, properties=own
        )
        check = producer.TransactionCheck(
            transaction=asked.place(broker).to_text(),
            message=message,
            messageId=half.message_id,
            bornAtMs=half.born_ms,
        )
        self._offer(group, Question(Topic(half.topic), half.message_id, half.size, check))

    def _offer(self, group: Group, question: Question) -> None:
        poll = self._checks.taker(group, question.topic)
        if poll is not None:
            _end(poll)
            self._hand_out(group, [question], poll.reply)
        elif not self._checks.hold(group, question, now_ns=now_ns()):
            self._noisy.warning(
                "questions dropped",
                "questions about transactions dropped: producers do not fetch them fast enough",
                group=group,
            )

    def _hand_out(self, group: Group, questions: list[Question], reply: Reply) -> None:
        def lost() -> None:
            self._members.pop(reply.connection, None)
            self._news.set()
            for question in questions:  # another producer may know the outcome
                self._offer(group, question)

        reply.call_if_lost(lost)
        checks = [question.check for question in questions]
        _answer(reply, producer.ChecksAnswer(code=OK, checks=checks))

    # ---- membership -----------------------------------------------------------------------------

    def _note_member(self, connection: Connection, group: Group, topics: frozenset[Topic]) -> None:
        until_ns = now_ns() + _MAX_WAIT_MS * 1_000_000 + _MEMBER_NS
        known = self._members.get(connection)
        self._members[connection] = _Member(group, topics, until_ns)
        if known is None or (known.group, known.topics) != (group, topics):
            self._news.set()
        if self._following is None or self._following.done():
            self._following = spawn(self._follow(), name="producer groups")

    async def _follow(self) -> None:
        """Keep the proxy in the groups of its members, until there are none."""
        if self._groups is None:
            self._groups = ProducerGroups(self._client, asked=self._asked)
        while self._members or self._joined:
            self._news.clear()
            now = now_ns()
            self._members = {
                connection: member
                for connection, member in self._members.items()
                if connection.transport is not None and member.until_ns > now
            }
            self._checks.expire(now)
            self._join(self._groups)
            try:
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._news.wait()
            except TimeoutError:
                continue

    def _join(self, groups: ProducerGroups) -> None:
        """Join and leave groups, so that they are those of the members."""
        wanted: dict[Group, frozenset[Topic]] = {}
        for member in self._members.values():
            wanted[member.group] = wanted.get(member.group, frozenset()) | member.topics
        before, self._joined = self._joined, wanted
        for group in before.keys() - wanted.keys():
            self._checks.forget(group)
        groups.become(wanted)


def _end(poll: _Poll) -> None:
    """Let nothing refer to *poll* any more, which no longer waits."""
    if poll.timer is not None:
        poll.timer.cancel()
        poll.timer = None
    poll.reply.call_if_lost(None)
    poll.reply.connection.pull_answered()


def _answer(reply: Reply, answer: Any) -> None:
    reply(producer_service.transactionChecks_result(success=answer))


def _group_named(name: str | None) -> Group:
    """Return the producer group. Raises IllegalMessage for an invalid name."""
    try:
        return Group(check_name("producer group", name or ""))
    except ValueError as error:
        raise IllegalMessage(str(error)) from None


def _timeout_s(timeout_ms: int | None) -> float:
    return min(max(timeout_ms or 0, 0), 60_000) / 1000 or DEFAULT_TIMEOUT_S
