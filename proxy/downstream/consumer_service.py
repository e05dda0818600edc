"""ConsumerService for clients with leases: pull, submit, settle, extend. No decisions.

Acks are applied before messages are selected, so a pull that acks a message may return its
successor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from broker_core.clock import now_ns
from broker_core.names import Group, Topic
from proxy.core.group.group_buffer import Batch, PullWish
from proxy.core.keys.ids import LeaseId
from proxy.core.leases.verdicts import judged_ids
from proxy.downstream.port.connection import Entry, Reply
from proxy.downstream.port.gate import refuse_by
from proxy.downstream.port.interpretation import interpretation_of, place_of
from proxy.downstream.port.load import Load
from proxy.downstream.port.replays import Replays, RequestName
from proxy.downstream.port.requests import (
    MAX_VERDICTS,
    NO_CONTEXT,
    holder_of,
    linger_ms,
    links_of,
    nacks_of,
    note_figures,
    pull_response,
    refuse_floods,
    request_name,
    uses_our_fields,
    wish_of,
)
from proxy.downstream.refusals import answer_unserved, refuse
from proxy.downstream.waiters import Waiters
from proxy.errors import OrderlaneError, Refused, UnknownName
from proxy.lane.group_lane import GroupLane
from proxy.lane.lanes import Lanes
from proxy.observe.logs import NoisyLog
from proxy.settings.proxy_settings import LimitSettings
from thrift_idl import consumer, consumer_service

_log = structlog.get_logger("consumers")

#: Longest wait while this proxy drains: clients send acks with their next pull.
_CLOSING_LINGER_MS = 100


@dataclass(slots=True, eq=False, repr=False)
class _Pull:
    """A pull that waits for messages. Its timer, connection and reply call its methods, which the
    service serves: one object for the whole wait.
    """

    service: ConsumerService
    lane: GroupLane
    wish: PullWish
    reply: Reply
    name: RequestName | None
    ours: bool
    timer: asyncio.TimerHandle | None = None

    def begin(self, wait_ms: int) -> None:
        """Wait for *wait_ms*."""
        self.timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self.give_up)
        self.reply.call_if_lost(self.lost)
        self.reply.connection.pull_waits(self.give_up, movable=self.ours)

    def end(self) -> None:
        """Let nothing refer to it any more, or its messages would stay in memory."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.reply.call_if_lost(None)
        self.reply.connection.pull_answered()

    def give_up(self) -> None:
        """Answer with nothing."""
        self.service.give_up(self)

    def lost(self) -> None:
        """End without an answer: the connection has ended."""
        self.service.lost(self)


class ConsumerService:
    """Serves the groups of *lanes*."""

    def __init__(self, lanes: Lanes, limits: LimitSettings, load: Load | None = None) -> None:
        """*load* limits the memory for answers."""
        self._lanes = lanes
        self._limits = limits
        self._load = load or Load(limits.max_inflight_bytes)
        self._load.call_on_room(self._serve_again)
        self._pulls_waiting = 0
        self._waiters: dict[Group, Waiters[_Pull]] = {}
        self._replays = Replays()
        self._waiting: dict[RequestName, _Pull] = {}
        self._noisy = NoisyLog(_log)
        self._closing = False
        self._served_ns: int | None = None
        self.unknown_names = 0
        self.replayed = 0  # repeated answers
        self.skipped_acks = 0  # links without a known group, or malformed

    def last_served_ns(self) -> int | None:
        """Time of the last delivery; None if there was none."""
        return self._served_ns

    def entries(self) -> dict[str, Entry]:
        """Return the methods by name."""
        return {
            "pull": Entry(
                consumer_service.pull_args, self.pull, self._refuse_pull, self._shed_pull
            ),
            "submit": Entry(
                consumer_service.submit_args,
                self.submit,
                refuse_by(consumer_service.submit_result),
                self._shed_submit,
                frees=True,
            ),
            "settle": Entry(
                consumer_service.settle_args,
                self.settle,
                refuse_by(consumer_service.settle_result),
                frees=True,
            ),
            "extend": Entry(
                consumer_service.extend_args,
                self.extend,
                refuse_by(consumer_service.extend_result),
                frees=True,
            ),
        }

    # ---- methods --------------------------------------------------------------------------------

    def pull(self, arguments: Any, reply: Reply) -> None:
        """Apply the verdicts, then answer with messages, waiting if none are ready."""
        request = arguments.request
        if request is None:
            refuse(reply, consumer_service.pull_result, Refused("pull came without its request"))
            return
        ours = request.clientId is not None or uses_our_fields(request)  # all ours set clientId
        connection = reply.connection
        now = now_ns()
        try:
            meaning = interpretation_of(reply, arguments)
            self._apply_all(request, reply, now_ns=now)
            name = request_name(request) if request.requestId else None
            lane = self._lanes.serving(meaning.group, meaning.topics, request.clientId)
            wish = wish_of(
                request,
                meaning,
                group=lane.settings,
                delivers=lane.delivers,
                ours=ours,
                connection=connection.connection_id,
                max_bytes=self._limits.max_answer_bytes,
            )
        except OrderlaneError as error:
            self._not_served(request, reply, error, ours=ours)
            return
        lane.pulled(wish.topics, now_ns=now)
        if connection.pulled.get(lane.name) != wish.holder.client:
            connection.pulls(lane.name, wish.holder.client)
        if request.figures is not None:
            self._note_figures(lane, request, reply)
        if name is not None and self._repeat(name, lane, wish, reply, ours=ours, now_ns=now):
            return
        batches = lane.lease(wish, now_ns=now)
        if batches:
            self._answer(lane, reply, batches, name, ours, now)
        elif self._pulls_waiting < self._limits.max_waiting_pulls:
            wait_ms = self._wait_ms(request, ours=ours)
            self._wait(_Pull(self, lane, wish, reply, name, ours), wait_ms)
        else:
            self._not_served(request, reply, self._too_many_pulls(), ours=ours)

    def submit(self, arguments: Any, reply: Reply) -> None:
        """Apply verdicts by offset without pulling; answers true, like DDMQ, to valid requests."""
        try:
            interpretation_of(reply, arguments)
        except Refused as error:
            refuse(reply, consumer_service.submit_result, error)
            return
        try:
            if reply.call.frame_bytes > MAX_VERDICTS:
                refuse_floods(result=arguments.result)
            connection = reply.connection.connection_id
            self._apply_result(arguments.result, connection, None, now_ns=now_ns())
        except OrderlaneError as error:
            self._noisy.warning("submit", "submit refused", reason=str(error))
        reply(consumer_service.submit_result(success=True))

    def settle(self, arguments: Any, reply: Reply) -> None:
        """Apply verdicts by lease id without pulling; answers with the leases that were not
        held.
        """
        request = arguments.request
        try:
            if request is None:
                raise Refused("settle came without its request")
            meaning = interpretation_of(reply, arguments)
            if reply.call.frame_bytes > MAX_VERDICTS:
                refuse_floods(acks=request.acks)
            void = self._apply_acks(request.acks, request.clientId, now_ns=now_ns())
            if request.figures is not None:
                # The rights that were checked are those of the verdicts, or of a pull before. For
                # clients of a broadcast group they are those of that group.
                groups = meaning.groups().union(reply.connection.pulled)
                checked = groups.union(map(self._lanes.asked_as, groups))
                group = request.groupId if request.groupId in checked else None
                if lane := self._lanes.holder_of(group, request.clientId):
                    self._note_figures(lane, request, reply)
        except OrderlaneError as error:
            refuse(reply, consumer_service.settle_result, error)
            return
        not_held = [consumer.LeaseRef(context=context, leaseId=each) for context, each in void]
        answer = consumer.AckAnswer(notHeld=not_held)
        reply(consumer_service.settle_result(success=answer))

    def extend(self, arguments: Any, reply: Reply) -> None:
        """Extend leases; answers with those that were not held."""
        request = arguments.request
        if request is None:
            error = Refused("extend came without its request")
            refuse(reply, consumer_service.extend_result, error)
            return
        try:
            interpretation_of(reply, arguments)
        except Refused as error:
            refuse(reply, consumer_service.extend_result, error)
            return
        not_held: list[consumer.LeaseRef] = []
        for context, lease_ids in _by_queue(request.leases or ()):
            place = place_of(context)
            lane = place and self._lanes.holder_of(place[0], request.clientId)
            void: Iterable[int] = lease_ids
            if lane is not None:
                lane.seen()
                void = lane.extend(
                    context.topic or "", context.qid or "", lease_ids, ms=request.ms or 0
                )
            not_held += [consumer.LeaseRef(context=context, leaseId=each) for each in void]
        reply(consumer_service.extend_result(success=consumer.AckAnswer(notHeld=not_held)))

    # ---- waiting --------------------------------------------------------------------------------

    def dispatch(self, lane: GroupLane) -> None:
        """Serve waiting pulls in order: jobs became ready."""
        waiters = self._waiters.get(lane.name)
        if waiters is None:
            return
        served_out: set[Topic] = set()  # topics whose ready jobs may not be delivered now
        while topics := lane.buffer.ready_topics(without=served_out):
            if self._load.is_over:
                return  # until there is room again
            pull = waiters.first(topics)
            if pull is None:
                return
            now = now_ns()
            batches = lane.lease(pull.wish, now_ns=now)
            if batches:
                waiters.remove(pull)
                self._serve(pull, batches, now_ns=now)
            else:  # pulls that only want these topics would get nothing either
                served_out.update(topics if pull.wish.topics is None else pull.wish.topics)

    def topics_changed(self, lane: GroupLane) -> None:
        """Send an empty answer to pulls that wait only for removed topics or a topic that the proxy
        now delivers itself: the client's next pull gets the error.
        """
        topics = {topic.name: topic for topic in lane.settings.topics}
        delivered = {name for name, topic in topics.items() if topic.delivery is not None}
        waiters = self._waiters.get(lane.name)
        for pull in [] if waiters is None else waiters.all():
            wanted = topics.keys() if pull.wish.topics is None else pull.wish.topics
            if delivered & wanted or not wanted & topics.keys():
                self.give_up(pull)

    def group_removed(self, group: Group) -> None:
        """Send an empty answer to all waiting pulls of *group*, and forget it."""
        waiters = self._waiters.get(group)
        for pull in [] if waiters is None else waiters.all():
            self.give_up(pull)
        self._waiters.pop(group, None)

    def close(self) -> None:
        """Send an empty answer to all waiting pulls; later pulls wait only briefly."""
        self._closing = True
        for waiters in self._waiters.values():
            while len(waiters):
                self.give_up(waiters.any())

    def _wait_ms(self, request: Any, *, ours: bool) -> int:
        wait_ms = linger_ms(request, ours=ours)
        return min(wait_ms, _CLOSING_LINGER_MS) if self._closing else wait_ms

    def _wait(self, pull: _Pull, wait_ms: int) -> None:
        waiters = self._waiters.get(pull.lane.name)
        if waiters is None:
            waiters = self._waiters[pull.lane.name] = Waiters()
        pull.begin(wait_ms)
        pull.lane.pull_waits(pull.wish)
        self._pulls_waiting += 1
        waiters.add(pull)
        if pull.name is not None:
            self._waiting[pull.name] = pull

    def give_up(self, pull: _Pull) -> None:
        """Answer *pull* with nothing, if it still waits."""
        waiters = self._waiters.get(pull.lane.name)
        if waiters is not None and waiters.remove(pull):
            self._serve(pull, [], now_ns=now_ns())

    def lost(self, pull: _Pull) -> None:
        """Forget *pull*, if it still waits: its connection has ended."""
        waiters = self._waiters.get(pull.lane.name)
        if waiters is not None and waiters.remove(pull):
            self._end(pull, now_ns=now_ns())

    def _serve(self, pull: _Pull, batches: list[Batch], *, now_ns: int) -> None:
        """Answer *pull*, which no longer waits."""
        self._end(pull, now_ns=now_ns)
        pull.lane.pulled(pull.wish.topics, now_ns=now_ns)
        self._answer(pull.lane, pull.reply, batches, pull.name, pull.ours, now_ns, waited=True)

    def _end(self, pull: _Pull, *, now_ns: int) -> None:
        self._pulls_waiting -= 1
        pull.end()
        pull.lane.pull_ends(pull.wish, now_ns=now_ns)
        if pull.name is not None:
            del self._waiting[pull.name]

    def _answer(
        self,
        lane: GroupLane,
        reply: Reply,
        batches: list[Batch],
        name: RequestName | None,
        ours: bool,
        now_ns: int,
        *,
        waited: bool = False,
        repeated: bool = False,
    ) -> None:
        """Answer a pull; one with a *name* can be *repeated*. *waited*: it waited for messages."""
        connection = reply.connection
        if_lost: Callable[[], None] | None = None
        if batches:
            self._served_ns = now_ns
            if name is None:
                if_lost = partial(lane.return_unsent, batches)
            else:  # its leases are kept for a repeated request
                if not repeated:
                    self._replays.keep(name, batches, now_ns=now_ns)
                if_lost = partial(lane.await_replay, batches, connection=connection.connection_id)
        response = pull_response(
            batches, group=lane.name, ours=ours, home=connection.home, waited=waited
        )
        reply(consumer_service.pull_result(success=response), if_lost)

    def _repeat(
        self,
        name: RequestName,
        lane: GroupLane,
        wish: PullWish,
        reply: Reply,
        *,
        ours: bool,
        now_ns: int,
    ) -> bool:
        """Repeat the answer to an earlier pull, if any of its leases are alive.

        A pull that waits under the same name on another connection was abandoned by its client.
        """
        if (pull := self._waiting.get(name)) is not None:
            pull.give_up()
        batches = self._replays.find(
            name, lane.buffer.find, topics=wish.topics, holder=wish.holder, now_ns=now_ns
        )
        if batches:
            self.replayed += 1
            lane.replayed(batches)
            self._answer(lane, reply, batches, name, ours, now_ns, repeated=True)
        return bool(batches)

    def _note_figures(self, lane: GroupLane, request: Any, reply: Reply) -> None:
        """Add what the client of a pull or settle reports."""
        holder = holder_of(request, reply.connection.connection_id)
        note_figures(lane.figures, request.figures, holder, now_ns=now_ns())

    # ---- limits ---------------------------------------------------------------------------------

    def _too_many_pulls(self) -> OrderlaneError:
        limit = "max_waiting_pulls"
        return self._load.refuse(
            limit,
            f"{self._pulls_waiting} pulls wait at this proxy, the maximum of its setting"
            f" limits.{limit}: try again later, or at another proxy",
        )

    def _serve_again(self) -> None:
        """There is room for answers again: serve pulls that waited despite ready messages."""
        asyncio.get_running_loop().call_soon(self._dispatch_all)

    def _dispatch_all(self) -> None:
        for group in list(self._waiters):
            if (lane := self._lanes.find(group)) is not None:
                self.dispatch(lane)

    def _shed_pull(self, arguments: Any, reply: Reply, error: OrderlaneError) -> None:
        """Apply the verdicts of a refused pull: other pulls may wait for their effect."""
        request = None if arguments is None else arguments.request
        if request is None:
            refuse(reply, consumer_service.pull_result, error)
            return
        try:
            interpretation_of(reply, arguments)
            self._apply_all(request, reply, now_ns=now_ns())
        except OrderlaneError as wrong:
            error = wrong.with_traceback(None)
        answer_unserved(request, reply, error, ours=uses_our_fields(request))

    def _shed_submit(self, arguments: Any, reply: Reply, error: OrderlaneError) -> None:
        """Apply the verdicts of a refused submit: DDMQ's clients do not resend them."""
        if arguments is None:
            refuse(reply, consumer_service.submit_result, error)
        else:
            self.submit(arguments, reply)

    # ---- internals ------------------------------------------------------------------------------

    def _apply_all(self, request: Any, reply: Reply, *, now_ns: int) -> None:
        """Apply the verdicts of a pull. Raises Refused for too many."""
        if reply.call.frame_bytes > MAX_VERDICTS:  # each has a byte at least
            refuse_floods(result=request.result, acks=request.acks)
        if request.result is not None:
            connection = reply.connection.connection_id
            self._apply_result(request.result, connection, request.clientId, now_ns=now_ns)
        if request.acks:
            self._apply_acks(request.acks, request.clientId, now_ns=now_ns)

    # The call was interpreted before: verdicts without group or topic have no effect.

    def _apply_acks(
        self, batches: Iterable[Any] | None, client: str | None, *, now_ns: int
    ) -> list[tuple[consumer.Context, int]]:
        """Apply verdicts by lease id, each batch to its group; return the leases that were not
        held.
        """
        not_held: list[tuple[consumer.Context, int]] = []
        for batch in batches or ():
            context = batch.context or NO_CONTEXT
            acked, released = batch.acked or (), batch.released or ()
            nacked = nacks_of(batch.nacked) if batch.nacked else ()
            topic = context.topic or ""
            lane = self._lanes.holder_of(context.groupId, client) if topic else None
            void: Sequence[int]
            if lane is None:
                self.skipped_acks += 1
                void = judged_ids(acked, nacked, released)
            else:
                void = lane.settle(
                    topic,
                    context.qid or "",
                    acked=acked,
                    nacked=nacked,
                    released=released,
                    at_ns=now_ns,
                )
                if void:
                    self._count_skipped(lane, topic)
            if void:
                not_held += [(context, number) for number in void]
        return not_held

    def _apply_result(
        self, result: Any, connection: int, client: str | None, *, now_ns: int
    ) -> None:
        """Apply verdicts by offset, each link of the chain *result* to its group."""
        for link in links_of(result):
            context = link.context or NO_CONTEXT
            topic = context.topic or ""
            lane = self._lanes.holder_of(context.groupId, client) if topic else None
            if lane is None:
                self.skipped_acks += 1
            elif lane.settle_by_offset(
                topic,
                context.qid or "",
                success=link.successOffsets or (),
                failed=link.failOffsets or (),
                connection=connection,
                at_ns=now_ns,
            ):
                self._count_skipped(lane, topic)

    def _count_skipped(self, lane: GroupLane, topic: str) -> None:
        """Count verdicts without effect if the group does not have their *topic*."""
        self.skipped_acks += topic not in lane.topics

    def _refuse_pull(self, arguments: Any, reply: Reply, error: OrderlaneError) -> None:
        request = arguments and arguments.request
        request = request or consumer.PullRequest(clientId="none")
        answer_unserved(request, reply, error, ours=uses_our_fields(request))

    def _not_served(self, request: Any, reply: Reply, error: OrderlaneError, *, ours: bool) -> None:
        self.unknown_names += isinstance(error, UnknownName)
        client = reply.connection.address
        key = f"{client} {type(error).__name__}"  # not the message, which contains client input
        self._noisy.warning(key, "pull refused", client=client, reason=str(error))
        answer_unserved(request, reply, error, ours=ours)


def _by_queue(references: Iterable[Any]) -> Iterable[tuple[Any, list[LeaseId]]]:
    """Return the contexts of lease *references*, each once, with their lease ids.

    The leases of a run move together; extended one by one, n of them would move n times each.
    """
    found: dict[tuple[str | None, ...], tuple[Any, list[LeaseId]]] = {}
    for reference in references:
        context = reference.context or NO_CONTEXT
        name = context.groupId, context.topic, context.qid
        _, lease_ids = found.setdefault(name, (context, []))
        lease_ids.append(LeaseId(reference.leaseId or 0))
    return found.values()
