"""The order of sends that are under way together: which may go out now, in which requests. Pure.

1. A send is in the lane of each of its keys. The sends of a lane go out in the order of the calls.
2. The next send of a lane goes out after the answer to the one before it, or behind it in the same
   request, since a proxy stores the messages of one queue in their order and stops at a failure.
3. When a send fails or is cancelled, the sends behind it in its lanes fail too, unsent, so that
   they do not overtake messages that the application sends again. Sends that are made later, and
   those ahead of a cancelled one, are sent.
4. Sends that were tried before share no request with new ones: what hinders them hinders no others.
5. A lane without sends uses no memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from thin_client.delivery import Answer, Delivery, each_answer
from thin_client.errors import ClientError, SendFailed
from thin_client.send_order import Key, SendOrder

#: Maximum of messages in a request that several sends share, and of their bytes.
MOST_TOGETHER, MOST_BYTES_TOGETHER = 256, 500_000

#: A send, and the seconds until ``resume`` must be called.
Pause = tuple["Send", float]


class State(Enum):
    """State of a send."""

    WAITING = "waiting"  # for its turn, or for sends before it in its lanes
    PAUSED = "paused"  # until it is tried again
    SENT = "sent"
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class Send:
    """One call of a producer.

    ``requests`` are sent one after the other. ``ended`` is called once: with None if all messages
    are stored or the send was cancelled, else with the error.
    """

    number: int  # of the SendOrder
    requests: list[Delivery]
    lanes: frozenset[Key]
    ended: Callable[[Exception | None], None]
    #: True for one message that may share a request.
    shares: bool
    state: State = State.WAITING
    ahead: int = 0  # lanes in which others are before it
    tried: bool = False
    cancelled: bool = False
    most_together: int = MOST_TOGETHER

    @property
    def request(self) -> Delivery:
        """The request to send next, or under way."""
        return self.requests[0]


class _Together:
    """The sends of one request."""

    def __init__(self, first: Send) -> None:
        self.sends: list[Send] = []
        self._size, self._most = 0, first.most_together
        self._tried = first.tried
        self.add(first)

    def admits(self, send: Send) -> bool:
        if send.state is not State.WAITING:  # it has ended, and is not sent
            return True
        return (
            send.shares
            and send.tried == self._tried
            and len(self.sends) < min(self._most, send.most_together)
            and self._size + send.request.size <= MOST_BYTES_TOGETHER
        )

    def add(self, send: Send) -> None:
        self.sends.append(send)
        self._size += send.request.size
        self._most = min(self._most, send.most_together)


class SendPipeline:
    """Owned by one event loop. Adding, taking and ending a send are O(1) per lane of it."""

    def __init__(self) -> None:
        self._order = SendOrder()
        self._lanes: dict[Key, deque[Send]] = {}  # the first one of each has not ended
        self._ready: deque[Send] = deque()
        self._unfinished = 0

    def __repr__(self) -> str:
        return f"<SendPipeline {self._unfinished} sends in {len(self._lanes)} lanes>"

    @property
    def idle(self) -> bool:
        """True if every send that was added has ended."""
        return not self._unfinished

    def enter(self) -> int:
        """Return the number of a call, which decides rule 3; ``add`` or ``leave`` must follow."""
        return self._order.enter()

    def leave(self, number: int, requests: Sequence[Delivery]) -> None:
        """Record that call *number* was cancelled before its send was added."""
        self._order.leave(number, failed=_open_keys(requests))

    def add(
        self, number: int, requests: list[Delivery], ended: Callable[[Exception | None], None]
    ) -> Send:
        """Add the send of call *number*, with at least one request; return it."""
        keys = _open_keys(requests)
        shares = len(requests) == 1 and requests[0].single
        send = Send(number, requests, keys, ended, shares)
        self._unfinished += 1
        for key in keys:
            lane = self._lanes.setdefault(key, deque())
            send.ahead += bool(lane)
            lane.append(send)
        if not send.ahead:
            self._ready.append(send)
        return send

    def take(self, now_ns: int) -> list[Send]:
        """Return the sends of the next request, in its order; none if no send may go.

        Ends sends whose time is up, or that must not be sent because of rule 3.
        """
        while self._ready:
            first = self._ready.popleft()
            if self._goes(first, now_ns):
                return self._shared(first, now_ns) if first.shares else [first]
        return []

    def divide(self, send: Send, parts: Sequence[Delivery]) -> None:
        """Replace the request of *send*, which was taken and is not sent yet, by *parts* of it."""
        send.requests[:1] = parts

    def answered(
        self, sends: Sequence[Send], answer: Answer, *, now_ns: int, jitter: Callable[[], float]
    ) -> list[Pause]:
        """Process the answer to the request of *sends*; return those to be resumed later."""
        answers = each_answer(answer, [send.request for send in sends])
        if answers is None:  # one of them spoils the request: find it
            for send in sends:
                send.most_together = len(sends) // 2
            return self._pauses(sends, [0.0] * len(sends))
        pauses: list[float | None] = []
        for send, one in zip(sends, answers, strict=True):
            try:
                pauses.append(send.request.pause_after(one, now_ns=now_ns, jitter=jitter()))
            except SendFailed as error:
                pauses.append(None)
                self._fail(send, error)
        return self._pauses(sends, pauses)

    def lost(
        self,
        sends: Sequence[Send],
        error: ClientError,
        *,
        sent: bool,
        now_ns: int,
        jitter: Callable[[], float],
    ) -> list[Pause]:
        """Process an error instead of an answer; *sent*: the request may have arrived."""
        pauses: list[float | None] = []
        for send in sends:
            try:
                pause_s = send.request.pause_after_error(
                    error, sent=sent, now_ns=now_ns, jitter=jitter()
                )
            except SendFailed as failure:
                pauses.append(None)
                self._fail(send, failure)
            else:
                pauses.append(pause_s)
        return self._pauses(sends, pauses)

    def resume(self, send: Send) -> None:
        """End the pause of a send, unless it was cancelled meanwhile."""
        if send.state is State.PAUSED:
            send.state = State.WAITING
            self._ready.append(send)

    def cancel(self, send: Send) -> None:
        """End a send whose caller no longer waits; a request under way is not repeated."""
        if send.state is State.ENDED or send.cancelled:
            return
        send.cancelled = True
        self._order.leave(send.number, failed=_open_keys(send.requests))
        if send.state is not State.SENT:
            self._end(send, None)

    def abandon(self, sends: Sequence[Send], error: Exception | None = None) -> None:
        """End *sends*, whose request was interrupted: by an *error* of this program, or None: by
        the application, such as at the end of the event loop.
        """
        for send in sends:
            if send.state is State.ENDED:
                continue
            if error is not None:
                self._end(send, error)
            else:
                send.request.doubt()
                self._fail(
                    send, send.request.given_up("the request was cancelled before the answer")
                )

    # ---- taking ---------------------------------------------------------------------------------

    def _goes(self, send: Send, now_ns: int) -> bool:
        """Mark *send* as sent; return False, and end it, if it must not be sent."""
        if send.state is not State.WAITING:  # cancelled
            return False
        if self._order.held_back(send.number, send.lanes):
            why = "an earlier send of its key failed while this one waited"
        elif now_ns > send.request.deadline_ns:
            why = "it timed out while it waited for earlier sends"
        else:
            send.state = State.SENT
            return True
        self._fail(send, send.request.given_up(why))
        return False

    def _shared(self, first: Send, now_ns: int) -> list[Send]:
        """Return *first* and the sends that share its request: those behind it in its lane, then
        others that may go and those behind them.
        """
        together = _Together(first)
        head = first
        while True:
            if head.state is State.SENT:  # otherwise another one is first in its lane now
                for key in head.lanes:  # at most one, since it has one message
                    for each in list(islice(self._lanes[key], 1, MOST_TOGETHER)):
                        if not together.admits(each):
                            break
                        if self._goes(each, now_ns):
                            together.add(each)
            if not (self._ready and together.admits(self._ready[0])):
                return together.sends
            head = self._ready.popleft()
            if self._goes(head, now_ns):
                together.add(head)

    # ---- ending ---------------------------------------------------------------------------------

    def _pauses(self, sends: Sequence[Send], pauses: Sequence[float | None]) -> list[Pause]:
        """Move on after an attempt, in the order of the request.

        A send with None has stored its request or has failed.
        """
        later: list[Pause] = []
        for send, pause_s in zip(sends, pauses, strict=True):
            if send.state is State.ENDED:
                continue
            if pause_s is None:
                del send.requests[0]
            if send.cancelled or not send.requests:
                self._end(send, None)
                continue
            send.tried = pause_s is not None
            if send.ahead:  # it follows the send before it
                send.state = State.WAITING
            elif not pause_s:
                send.state = State.WAITING
                self._ready.append(send)
            else:
                send.state = State.PAUSED
                later.append((send, pause_s))
        return later

    def _fail(self, send: Send, error: SendFailed) -> None:
        for request in send.requests[1:]:
            for message_id in request.open_ids():
                error.failures.setdefault(message_id, "not sent: an earlier part failed")
        self._end(send, error)

    def _end(self, send: Send, error: Exception | None) -> None:
        send.state = State.ENDED
        self._unfinished -= 1
        if not send.cancelled:
            self._order.leave(send.number, failed=_open_keys(send.requests))
        for key in send.lanes:
            lane = self._lanes[key]
            if lane[0] is not send:
                continue  # removed once it is first
            while lane and lane[0].state is State.ENDED:
                lane.popleft()
            if lane:
                self._is_first(lane[0])
            else:
                del self._lanes[key]
        send.ended(None if send.cancelled else error)

    def _is_first(self, send: Send) -> None:
        send.ahead -= 1
        if not send.ahead and send.state is State.WAITING:
            self._ready.append(send)


def _open_keys(requests: Sequence[Delivery]) -> frozenset[Key]:
    """Return the keys of all messages that are not known to be stored."""
    return frozenset(key for request in requests for key in request.keys())  # noqa: SIM118
