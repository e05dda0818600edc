"""ConsumerService for clients that hold leases: pull, submit, settle, extend. No decisions.

Acks are applied before messages are taken, so a pull that acks a message may bring its successor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

import structlog

from broker_core.names import Group
from proxy.core.group_buffer import Batch, PullWish
from proxy.core.ids import LeaseId
from proxy.downstream.requests import (
    Addressed,
    linger_ms,
    pull_response,
    refuse_later_fields,
    uses_our_fields,
    verdicts_of_acks,
    verdicts_of_result,
    wanted_topics,
    wish_of,
)
from proxy.downstream.thrift_server import Entry, Reply
from proxy.downstream.waiters import Waiter, Waiters
from proxy.errors import OrderlaneError
from proxy.group_lane import GroupLane
from proxy.lanes import Lanes
from proxy.logs import NoisyLog
from proxy.settings import LimitSettings
from thrift_idl import consumer, consumer_service

_log = structlog.get_logger("consumers")

#: Codes of a PullException: what the request should have been, and what this version lacks.
UNKNOWN_NAME, REFUSED = 404, 400


class ConsumerService:
    """Serves the groups of *lanes*."""

    def __init__(self, lanes: Lanes, limits: LimitSettings) -> None:
        self._lanes = lanes
        self._limits = limits
        self._waiters: dict[Group, Waiters] = {}
        self._noisy = NoisyLog(_log)
        self._closing = False
        self.unknown_names = 0
        self.skipped_acks = 0  # links that name no group here, or are malformed

    def entries(self) -> Mapping[str, Entry]:
        """The methods by name."""
        return {
            "pull": Entry(consumer_service.pull_args, self.pull),
            "submit": Entry(consumer_service.submit_args, self.submit),
            "settle": Entry(consumer_service.settle_args, self.settle),
            "extend": Entry(consumer_service.extend_args, self.extend),
        }

    # ---- methods --------------------------------------------------------------------------------

    def pull(self, arguments: Any, reply: Reply) -> None:
        """Apply the verdicts, then answer with messages, now or when some become ready."""
        request = arguments.request
        if request is None:
            self._refuse(reply, REFUSED, "pull came without its request")
            return
        ours = uses_our_fields(request)
        connection = reply.connection.connection_id
        self._apply(verdicts_of_result(request.result), connection)
        self._apply(verdicts_of_acks(request.acks), connection)
        try:
            refuse_later_fields(request)
            lane = self._lanes.require(request.groupId, wanted_topics(request))
        except OrderlaneError as error:
            self._unknown(request, reply, error, ours=ours)
            return
        lane.seen()
        wish = wish_of(
            request, ours=ours, connection=connection, max_bytes=self._limits.max_answer_bytes
        )
        batches = lane.lease(wish)
        wait_ms = linger_ms(request, ours=ours)
        if batches or self._closing:
            self._answer(lane, reply, batches, ours=ours)
        else:
            self._wait(lane, wish, reply, wait_ms=wait_ms, ours=ours)

    def submit(self, arguments: Any, reply: Reply) -> None:
        """Apply verdicts by offset without pulling; always true, as in DDMQ."""
        self._apply(verdicts_of_result(arguments.result), reply.connection.connection_id)
        reply(consumer_service.submit_result(success=True))

    def settle(self, arguments: Any, reply: Reply) -> None:
        """Apply verdicts by lease id without pulling; names the leases that were not held."""
        request = arguments.request
        not_held = (
            []
            if request is None
            else self._apply(verdicts_of_acks(request.acks), reply.connection.connection_id)
        )
        answer = consumer.AckAnswer(notHeld=not_held)
        reply(consumer_service.settle_result(success=answer))

    def extend(self, arguments: Any, reply: Reply) -> None:
        """Let leases run on; names those that were not held."""
        request = arguments.request
        not_held = []
        for reference in (request.leases or ()) if request is not None else ():
            context = reference.context
            lane = None if context is None else self._lanes.find(context.groupId)
            lease_id = LeaseId(reference.leaseId or 0)
            if lane is not None:
                lane.seen()
                if not lane.extend(context.topic, context.qid, [lease_id], ms=request.ms or 0):
                    continue
            not_held.append(reference)
        reply(consumer_service.extend_result(success=consumer.AckAnswer(notHeld=not_held)))

    # ---- waiting --------------------------------------------------------------------------------

    def dispatch(self, lane: GroupLane) -> None:
        """Jobs became ready: serve the waiting pulls in turn as far as they go."""
        waiters = self._waiters.get(lane.name)
        if waiters is None:
            return
        topics = lane.buffer.ready_topics()
        while topics and (waiter := waiters.first(topics)) is not None:
            batches = lane.lease(waiter.wish)
            if not batches:
                return
            waiters.remove(waiter)
            waiter.answer(batches)
            topics = lane.buffer.ready_topics()

    def close(self) -> None:
        """Answer all waiting pulls with nothing; later ones do not wait."""
        self._closing = True
        for waiters in self._waiters.values():
            while len(waiters):
                waiter = waiters.any()
                waiters.remove(waiter)
                waiter.answer([])

    def _wait(
        self, lane: GroupLane, wish: PullWish, reply: Reply, *, wait_ms: int, ours: bool
    ) -> None:
        waiters = self._waiters.setdefault(lane.name, Waiters())

        def answer(batches: list[Batch]) -> None:
            waiter.timeout.cancel()
            lane.waiting_pulls -= 1
            lane.seen()
            self._answer(lane, reply, batches, ours=ours)

        def give_up() -> None:
            if waiters.remove(waiter):
                answer([])

        def lost() -> None:
            if waiters.remove(waiter):
                waiter.timeout.cancel()
                lane.waiting_pulls -= 1

        waiter = Waiter(wish, answer)
        waiter.timeout = asyncio.get_running_loop().call_later(wait_ms / 1000, give_up)
        reply.on_lost = lost
        lane.waiting_pulls += 1
        waiters.add(waiter)

    def _answer(self, lane: GroupLane, reply: Reply, batches: list[Batch], *, ours: bool) -> None:
        reply.on_lost = (lambda: lane.return_unsent(batches)) if batches else None
        response = pull_response(batches, group=lane.name, ours=ours, home=reply.connection.home)
        reply(consumer_service.pull_result(success=response))

    # ---- inside ---------------------------------------------------------------------------------

    def _apply(self, verdicts: Iterable[Addressed], connection: int) -> list[consumer.LeaseRef]:
        """Apply each to the group that it names; returns the leases that were not held."""
        not_held = []
        for group, each in verdicts:
            lane = self._lanes.find(group)
            if each is None or lane is None:
                self.skipped_acks += 1
                continue
            lane.seen()
            context = consumer.Context(groupId=group, topic=each.topic, qid=each.qid)
            not_held += [
                consumer.LeaseRef(context=context, leaseId=number)
                for number in lane.settle(each, connection=connection)
            ]
        return not_held

    def _unknown(self, request: Any, reply: Reply, error: OrderlaneError, *, ours: bool) -> None:
        self.unknown_names += 1
        client = reply.connection.address
        self._noisy.warning(str(error), "pull refused", client=client, reason=str(error))
        if ours:
            self._refuse(reply, UNKNOWN_NAME, str(error))
            return
        # DDMQ's C++ client drops its acks at an exception, its Go client stalls for 5 s; and an
        # answer at once would let them spin.
        answer = consumer_service.pull_result(
            success=pull_response([], group="", ours=False, home="")
        )
        delay_s = linger_ms(request, ours=False) / 1000
        asyncio.get_running_loop().call_later(delay_s, reply, answer)

    def _refuse(self, reply: Reply, code: int, message: str) -> None:
        error = consumer.PullException(code=code, message=message)
        reply(consumer_service.pull_result(error=error))
