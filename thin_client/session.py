"""State machine of a consuming client. Pure; the model for the clients in other languages.

The feeder around it owns sockets, tasks and the clock. It takes the times of the next requests from
``pull_at`` and ``control_at``, sends the requests of ``begin_pull`` and ``begin_control``, and
reports answers and failures. The consumer passes messages from ``take`` to handlers and reports
their outcomes to ``settle``.

Rules, which tests refer to:

S1  A verdict is sent with the next pull to the proxy that holds its lease.
S2  A verdict waits at most ``ack_linger_ns`` for the next pull. If it may release a message for
    which a pull waits at the proxy, it is sent at once while no message waits in the client, and
    otherwise once that pull has been unanswered for 3 ms. (It releases nothing if the client holds
    the next message of its key.) While verdicts are being sent, new ones are collected.
    If the last answer brought more than half of what was asked for, the next one is probably on
    its way: then a client may wait, instead of sending at once, until 1 ms after the last waiting
    message went to a handler, so that the next pull takes the verdict along. So far Python does.
S3  A verdict is sent again until an answer confirms it or its lease cannot be alive, and never
    after that.
S4  A lease starts when its pull is *sent*. A message whose lease has expired goes to a handler only
    after an ``extend`` has confirmed it: the answer of a suspended proxy may be late.
S5  A lease is extended after a third of its length, whether its message is handled or waits.
S6  At most one message of an order key is with a handler, even if the proxy delivers several.
S7  At most ``concurrency`` messages are with handlers, and ``prefetch`` more wait in the client.
S8  After ``stop`` no message goes to a handler: waiting and arriving messages are returned.
S9  A failed pull is repeated under the same ID, so that the proxy repeats an answer that was lost.
    Its leases start at the *first* sending. Once they must have expired, pulls have a new ID.
S10 Messages of one order key in one answer are a run: after the first verdict other than an ack,
    the messages behind it are returned together with this verdict.
S11 Pulls and settles report, four times a second and after ``stop``, how long handlers took for
    messages and the proxy to answer requests at once. A report that is lost is not repeated.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from thin_client.arrivals import name_in, read_leases
from thin_client.backoff import backoff_ns
from thin_client.figures import Figures
from thin_client.lease import Home, Lease, LeaseName, name_of
from thin_client.lease_extension import LeaseExtension, to_extend
from thin_client.leases import Leases
from thin_client.message import Defer, Message, Outcome
from thin_client.session_options import SessionOptions
from thin_client.verdicts import Verdicts
from thrift_idl import consumer

_MS = 1_000_000
#: Wait of a pull: a quarter of the lease, so that most of the lease is left (S4), within bounds;
#: _FIRST_LINGER_NS before the first lease.
_MIN_LINGER_NS, _FIRST_LINGER_NS, _MAX_LINGER_NS = 20 * _MS, 1_000 * _MS, 10_000 * _MS
#: Pause after an empty answer before the end of the pull's wait: the proxy is shutting down.
_EARLY_PAUSE_NS = 50 * _MS
#: Time within which a proxy with messages answers a pull; after it the pull is waiting.
_ANSWER_DUE_NS = 3 * _MS
#: Time without a waiting message in which an answer may come that is on its way.
_ANSWER_NEAR_NS = 1 * _MS


@dataclass(slots=True, eq=False)
class _Pull:
    request_id: str
    first_sent_ns: int  # time of the first sending under this ID
    sent_ns: int
    linger_ns: int
    asked: int  # most messages that it brings
    verdicts: Verdicts
    home: Home | None  # the proxy of the verdicts


class Session:
    """State of one consumer. Used by one event loop, or guarded by one lock; all times in ns."""

    def __init__(self, options: SessionOptions) -> None:
        self.options = options
        #: Set when a request may have become due sooner, by ``settle`` or ``take``. ``calm`` resets
        #: it. Other causes are rare.
        self.stirred = False
        #: Proxies with leases or unconfirmed verdicts of this client, by address.
        self.homes: dict[str | None, Home] = {}
        self.stopping = False
        self._leases = Leases(options.concurrency)
        self._figures = Figures(handlers=options.concurrency, prefetch=options.prefetch)
        self._capacity = options.concurrency + options.prefetch
        self._low_water = max(1, (options.prefetch + 1) // 2)
        self._pull: _Pull | None = None
        self._failed_pull: _Pull | None = None  # to be repeated
        self._pulls = 0  # number of IDs assigned
        self._lease_ns: int | None = None  # the longest lease of the last answer with messages
        self._pull_home: Home | None = None  # the proxy of the pull connection, if known
        self._pull_retry_at_ns = 0
        self.pull_failures = 0  # in a row
        self._linger_ns = _FIRST_LINGER_NS
        self._expects_more = False  # the last answer was rather full
        self._dry_ns = 0  # time when the last waiting message went to a handler

    def __repr__(self) -> str:
        leases = self._leases
        return (
            f"<Session {self.options.group} open={leases.open} ready={len(leases.ready)}"
            f" held={len(leases)} pulling={self._pull is not None} homes={len(self.homes)}>"
        )

    # ---- for the Keeper's thread, which may only read --------------------------------------------

    @property
    def lease_ns(self) -> int | None:
        """The longest lease of the last answer with messages; None before the first."""
        return self._lease_ns

    @property
    def holds_any(self) -> bool:
        """True while leases are held or verdicts are unconfirmed."""
        return len(self._leases) > 0 or any(
            home.verdicts or home.settling for home in list(self.homes.values())
        )

    def to_extend(self, home: Home, gone: Collection[LeaseName]) -> LeaseExtension | None:
        """Return the extend request for *home* while the event loop is blocked, without *gone*."""
        pull = self._pull
        unsent = [home.verdicts, home.settling, pull and pull.home is home and pull.verdicts]
        return to_extend(
            [lease for lease in self._leases.copy() if lease.origin.home is home],
            [verdicts for verdicts in unsent if verdicts],
            self.options,
            longest_ns=self._lease_ns or 0,
            gone=gone,
        )

    def refused(self, leases: Sequence[Lease]) -> list[Message]:
        """Record that the proxy refused to extend *leases*; return those with handlers."""
        return [message for lease in leases for message in self._lose(lease)]

    def calm(self) -> None:
        """Reset ``stirred``. Called by the feeder when it checks for due requests."""
        self.stirred = False

    # ---- messages and handlers ------------------------------------------------------------------

    @property
    def takeable(self) -> int:
        """Number of messages that ``take`` can return; includes waiting messages that expired."""
        return min(len(self._leases.ready), self._leases.concurrency - self._leases.open)

    @property
    def open(self) -> int:
        """Number of messages with handlers."""
        return self._leases.open

    @property
    def held(self) -> int:
        """Number of messages whose leases are held."""
        return len(self._leases)

    @property
    def flushed(self) -> bool:
        """True if no request is pending and no verdict waits to be sent."""
        outbound = any(home.busy or home.verdicts for home in self.homes.values())
        return self._pull is None and not outbound

    @property
    def drained(self) -> bool:
        """True if flushed and no lease is held."""
        return not self._leases and self.flushed

    def take(self, now_ns: int) -> Message | None:
        """Return the next message for a handler, or None (S4, S6, S7)."""
        leases = self._leases
        lease = leases.take(now_ns)
        if lease is not None and (waiting := len(leases.ready)) < self._low_water:
            if not waiting:
                self._dry_ns = now_ns
            if self._pull is not None:  # verdicts hurry once no message waits
                self.stirred = self.stirred or not waiting
            elif leases.count < self._capacity:
                self.stirred = True
        return lease

    def take_batch(self, now_ns: int, *, most: int) -> list[Message]:
        """Return the next messages of one run for a handler, at most *most* (S4, S6, S7)."""
        taken: list[Message] = list(self._leases.take_batch(now_ns, most=most))
        if taken:
            self.stirred = True
            if not self._leases.ready:
                self._dry_ns = now_ns
        return taken

    def settle_batch(
        self, messages: Sequence[Message], done: int, outcome: Outcome, now_ns: int
    ) -> None:
        """Settle a batch of ``take_batch``: the first *done* messages are acked, *outcome* decides
        about the next one, and the rest are returned unhandled (S10).
        """
        handled = min(done + (outcome is not None), len(messages))
        for number, message in enumerate(messages):
            if number < handled:
                self._leases.share_time(_lease_of(message), now_ns, handled)
            if number < done:
                self.settle(message, None, now_ns)
            elif number == done and outcome is not None:
                self.settle(message, outcome, now_ns)
            else:
                self.settle(message, Defer(), now_ns)

    def settle(self, message: Message, outcome: Outcome, now_ns: int) -> None:
        """Record a handler's verdict. Raises KeyError if *message* is not with a handler."""
        lease: Lease = message  # type: ignore[assignment]  # all messages here are leases
        leases = self._leases
        if outcome is None:  # as _judge, which would be another call for every message
            origin = lease.origin
            opened_ns, is_followed = leases.close(lease)
            self._figures.handled(now_ns - opened_ns)
            verdicts, lease_id, until_ns = origin.home.verdicts, lease.lease_id, lease.deadline_ns
            if (
                verdicts.ack(
                    origin.queue, origin.context, lease_id, until_ns, now_ns, not is_followed
                )
                or self.stopping
                or (leases.count == self._capacity - 1 and len(leases.ready) < self._low_water)
            ):  # the last: it was full, and may pull again
                self.stirred = True
            return
        self.stirred = True
        rest = leases.drop_rest(lease) if lease in leases.opened else []
        opened_ns, _ = leases.close(lease)
        if not isinstance(outcome, Defer):
            self._figures.handled(now_ns - opened_ns)
        self._judge(lease, outcome, now_ns)
        for each in rest:
            self._judge(each, Defer(), now_ns)

    def stop(self, now_ns: int) -> None:
        """Stop pulling, and return waiting messages (S8)."""
        self.stopping = True
        for lease in self._leases.drop_waiting():
            self._judge(lease, Defer(), now_ns)

    def _judge(self, lease: Lease, outcome: Outcome, now_ns: int) -> None:
        origin = lease.origin
        verdicts, lease_id, until_ns = origin.home.verdicts, lease.lease_id, lease.deadline_ns
        if (
            verdicts.add(origin.queue, origin.context, lease_id, outcome, until_ns, now_ns)
            or self.stopping
        ):
            self.stirred = True

    # ---- pulling --------------------------------------------------------------------------------

    def pull_at(self) -> int | None:
        """Return the time of the next pull; None while none is due."""
        if (
            self.stopping
            or self._pull is not None
            or len(self._leases.ready) >= self._low_water
            or self._leases.count >= self._capacity
        ):
            return None
        return self._pull_retry_at_ns

    def begin_pull(self, now_ns: int) -> consumer.PullRequest:
        """Return the pull to send, with verdicts (S1). Report its answer or failure."""
        home = self._pull_home or self.homes.get(None)
        verdicts = Verdicts() if home is None else home.take_verdicts()
        request_id, first_sent_ns = self._next_id(now_ns)
        asked = self._capacity - self._leases.count
        self._pull = _Pull(
            request_id, first_sent_ns, now_ns, self._linger_ns, asked, verdicts, home
        )
        topics = self.options.topics
        return consumer.PullRequest(
            groupId=self.options.group,
            topics=None if topics is None else list(topics),
            maxBatchSize=asked,
            maxLingerTime=self._linger_ns // _MS,
            version=self.options.version,
            clientId=self.options.client_id,
            token=self.options.token,
            manyQueues=True,
            acks=verdicts.batches() or None,
            requestId=request_id,
            maxRun=self.options.max_run if self.options.max_run > 1 else None,
            figures=self._figures.report(now_ns),
        )

    def _next_id(self, now_ns: int) -> tuple[str, int]:
        """Return the ID of the next pull, and the time of its first sending (S9)."""
        failed, self._failed_pull = self._failed_pull, None
        if failed is not None:
            over = self._lease_ns is not None and (
                now_ns >= failed.first_sent_ns + failed.linger_ns + self._lease_ns
            )
            if not over:
                return failed.request_id, failed.first_sent_ns
        self._pulls += 1
        return f"{self.options.request_prefix}{self._pulls}", now_ns

    def pull_answered(self, response: consumer.PullResponse, now_ns: int) -> int:
        """Add the answer's messages; return their number.

        Raises ProtocolError for a malformed answer, without any change; call ``pull_failed`` then.
        """
        pull = self._pull
        assert pull is not None
        parts = [response, *(response.more or ())]
        address = response.home or next((part.home for part in parts if part.home), None)
        home = self.homes.get(address) or Home(address)
        length_ms = response.leaseMs or 0
        arrived = [
            leases
            for part in parts
            if (leases := read_leases(part, home, sent_ns=pull.first_sent_ns, length_ms=length_ms))
        ]
        self._pull = None
        self.pull_failures = 0
        if not response.waited and pull.sent_ns == pull.first_sent_ns:
            self._figures.answered(now_ns - pull.sent_ns)
        if arrived:
            self.homes[address] = self._pull_home = home
            lengths = [leases[0].origin.length_ns for leases in arrived]
            self._lease_ns = max(lengths)
            self._linger_ns = min(max(min(lengths) // 4, _MIN_LINGER_NS), _MAX_LINGER_NS)
        elif now_ns - pull.sent_ns < pull.linger_ns // 2:
            self._pull_retry_at_ns = now_ns + _EARLY_PAUSE_NS
        for leases in arrived:
            if self.stopping:
                for lease in leases:
                    self._judge(lease, Defer(), now_ns)
            else:
                self._leases.add(leases)
                self._plan_extend(leases[0])
        self._forget_idle_homes()
        count = sum(map(len, arrived))
        self._expects_more = 2 * count > pull.asked
        return count

    def pull_failed(self, now_ns: int, jitter: float) -> None:
        """Record that the pull had no answer, a malformed one, or no connection; its verdicts are
        sent again (S3).
        """
        pull, self._pull = self._pull, None
        if pull is not None:
            self._failed_pull = pull
            if pull.home is not None:
                pull.home.verdicts.absorb(pull.verdicts)
        self._pull_home = None  # the next connection may lead to another proxy
        self._expects_more = False
        self.pull_failures += 1
        self._pull_retry_at_ns = now_ns + backoff_ns(self.pull_failures, jitter)

    # ---- settling and extending -----------------------------------------------------------------

    def control_at(self, home: Home) -> int | None:
        """Return the time of the next settle or extend at *home* (S2, S5); None if none is due."""
        if home.settling is not None or home.extending is not None:
            return None
        at = home.extend_at_ns
        if home.verdicts.since_ns is not None:
            flush_at = self._flush_at(home)
            if at is None or (flush_at is not None and flush_at < at):
                at = flush_at
        return None if at is None else max(at, home.retry_at_ns)

    def begin_control(
        self, home: Home, now_ns: int
    ) -> consumer.AckRequest | consumer.ExtendRequest | None:
        """Return the request to send to *home*, or None. Report its answer or failure."""
        if home.extend_at_ns is not None and home.extend_at_ns <= now_ns:
            due_ns = self._plan_extends(home)  # the lease of the planned extend may be gone
            if due_ns is not None and due_ns <= now_ns:
                return self._begin_extend(home, now_ns)
        flush_at = self._flush_at(home)
        if flush_at is None or flush_at > now_ns:
            return None
        return consumer.AckRequest(
            groupId=self.options.group,
            acks=home.begin_settle(now_ns).batches(),
            clientId=self.options.client_id,
            token=self.options.token,
            figures=self._figures.report(now_ns, last=self.stopping),
        )

    def control_answered(
        self, home: Home, answer: consumer.AckAnswer, now_ns: int
    ) -> list[Message]:
        """Record the answer to a settle or extend; return messages with handlers whose lease is
        lost.
        """
        self._figures.answered(now_ns - home.asked_ns)
        extended = home.end_request()
        lost: list[Message] = []
        if extended is not None:
            refused = {name_in(reference) for reference in answer.notHeld or ()}
            length_ns = home.asked_length_ns
            until_ns = home.asked_ns + length_ns
            for lease in extended:
                if name_of(lease) in refused:
                    lost += self._lose(lease)
                else:
                    lease.extended(until_ns, length_ns)
            self._plan_extends(home)
        self._forget_idle_homes()
        return lost

    def control_failed(self, home: Home, now_ns: int, jitter: float) -> list[Message]:
        """Record that a settle or extend had no answer; it is sent again (S3).

        Return messages with handlers whose lease has expired meanwhile.
        """
        failures = home.fail_request(now_ns)
        home.pause_until(now_ns + backoff_ns(failures, jitter))
        late = [each for each in self._leases_of(home) if each.deadline_ns <= now_ns]
        lost = [message for lease in late for message in self._lose(lease)]
        self._plan_extends(home)
        self._forget_idle_homes()
        return lost

    def _flush_at(self, home: Home) -> int | None:
        since = home.verdicts.since_ns
        if since is None:
            return None
        if self.stopping:
            return since
        last = since + self.options.ack_linger_ns
        if self._pull is None or not home.verdicts.hurry:
            return last
        until = self._pull.sent_ns + _ANSWER_DUE_NS
        if not self._leases.ready:
            if not self._expects_more:
                return since
            until = min(until, self._dry_ns + _ANSWER_NEAR_NS)
        return min(last, max(since, until))

    def _begin_extend(self, home: Home, now_ns: int) -> consumer.ExtendRequest:
        leases = self._leases_of(home)
        length_ns = home.begin_extend(leases, now_ns)
        return consumer.ExtendRequest(
            groupId=self.options.group,
            leases=[
                consumer.LeaseRef(context=lease.origin.context, leaseId=lease.lease_id)
                for lease in leases
            ],
            ms=length_ns // _MS,
            clientId=self.options.client_id,
            token=self.options.token,
        )

    def _leases_of(self, home: Home) -> list[Lease]:
        """Return the leases to keep alive at *home*; O(n)."""
        return [each for each in self._leases if each.origin.home is home and not each.lease_lost]

    def _plan_extend(self, lease: Lease) -> None:
        home, at = lease.origin.home, lease.extend_at_ns
        if home.extend_at_ns is None or at < home.extend_at_ns:
            home.plan_extend(at)

    def _plan_extends(self, home: Home) -> int | None:
        at = min((each.extend_at_ns for each in self._leases_of(home)), default=None)
        home.plan_extend(at)
        return at

    def _lose(self, lease: Lease) -> list[Message]:
        if not self._leases.holds(lease):
            return []
        if lease in self._leases.opened:
            lease.lose()
            return [lease]
        self._leases.drop(lease)
        return []

    def _forget_idle_homes(self) -> None:
        if len(self.homes) < 2:
            return
        pulling = self._pull.home if self._pull is not None else None
        in_use = {lease.origin.home.address for lease in self._leases}
        for home in list(self.homes.values()):
            needed = home in (self._pull_home, pulling) or home.busy or bool(home.verdicts)
            if not needed and home.address not in in_use:
                del self.homes[home.address]


def _lease_of(message: Message) -> Lease:
    """Return *message*, which is a lease as all messages of a session are."""
    return message  # type: ignore[return-value]
