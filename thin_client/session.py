"""What a consuming client does next: pure, and the model for the clients in other languages.

The shell around it owns sockets, tasks and the clock. It asks ``pull_at`` and ``control_at`` when
something is due, sends what ``begin_pull`` and ``begin_control`` return, reports the answer or the
failure, gives messages from ``take`` to handlers, and reports their ends to ``settle``.

Rules; tests name them:

S1  A verdict rides on the next pull to the proxy that holds its lease.
S2  A verdict waits for the next pull, ``ack_linger_ns`` at most. But what it releases may be just
    what a pull at the proxy waits for: it is sent at once if no message waits here meanwhile, and
    otherwise once that pull has not been answered for 3 ms. (One whose key goes on here releases
    nothing.) While some are under way others gather.
S3  A verdict is sent again until an answer confirms it or its lease cannot be alive, and never
    after that.
S4  A lease runs from the moment its pull was *sent*. A message whose lease has run out goes to a
    handler only after an ``extend`` has confirmed it: a stopped proxy's answer may come late.
S5  With a third of its length gone a lease is extended, whether its message is handled or waits.
S6  Of one order key at most one message is with a handler, even if the proxy erred.
S7  At most ``concurrency`` messages are with handlers, and ``prefetch`` more wait here.
S8  After ``stop`` no message goes to a handler: what waits, and what still arrives, is given back.
S9  A pull that failed is repeated under the same id: its answer may be lost, and its proxy gives it
    again. Its leases run from the *first* sending. Once they must be over a pull has a new id.
S10 What came together of one order key is a run: at the first of it that does not end well, those
    behind it are given back with the verdict.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from thin_client.arrivals import name_in, read_leases
from thin_client.backoff import backoff_ns
from thin_client.kept import Kept, to_keep
from thin_client.lease import Home, Lease, LeaseName, name_of
from thin_client.leases import Leases
from thin_client.message import Defer, Message, Outcome
from thin_client.session_options import SessionOptions
from thin_client.verdicts import Verdicts
from thrift_idl import consumer

_MS = 1_000_000
#: How long a pull may wait: a quarter of the lease, so that what it brings has most of its lease
#: left (S4); and before any lease was seen.
_MIN_LINGER_NS, _FIRST_LINGER_NS, _MAX_LINGER_NS = 20 * _MS, 1_000 * _MS, 10_000 * _MS
#: Pause after an answer that is empty although its pull could have waited: a proxy that shuts down.
_EARLY_PAUSE_NS = 50 * _MS
#: A proxy that has messages answers a pull within this; one that does not lets the pull wait.
_ANSWER_DUE_NS = 3 * _MS


@dataclass(slots=True, eq=False)
class _Pull:
    request_id: str
    first_sent_ns: int  # under this id
    sent_ns: int
    linger_ns: int
    verdicts: Verdicts
    home: Home | None  # whose verdicts these are


class Session:
    """One consumer's state. Owned by one task, or guarded by one lock; all times in ns."""

    def __init__(self, options: SessionOptions) -> None:
        self.options = options
        #: Set when something may have become due sooner, a control by a ``settle``, a pull by that
        #: or the ``take`` after it; ``calm`` resets it. Other causes are rare.
        self.stirred = False
        #: Proxies that hold leases of ours or wait for verdicts, by address.
        self.homes: dict[str | None, Home] = {}
        self.stopping = False
        self._leases = Leases(options.concurrency)
        self._capacity = options.concurrency + options.prefetch
        self._low_water = max(1, (options.prefetch + 1) // 2)
        self._pull: _Pull | None = None
        self._failed_pull: _Pull | None = None  # to be repeated
        self._pulls = 0  # ids given so far
        self._lease_ns: int | None = None  # the longest of those that came last, if any came
        self._pull_home: Home | None = None  # where the connection for pulls leads, if known
        self._pull_retry_at_ns = 0
        self.pull_failures = 0  # in a row
        self._linger_ns = _FIRST_LINGER_NS

    def __repr__(self) -> str:
        leases = self._leases
        return (
            f"<Session {self.options.group} open={leases.open} ready={len(leases.ready)}"
            f" held={len(leases)} pulling={self._pull is not None} homes={len(self.homes)}>"
        )

    # ---- for a thread beside the shell, which may only read --------------------------------------

    @property
    def lease_ns(self) -> int | None:
        """The longest of the leases that came last; None before any came."""
        return self._lease_ns

    @property
    def holds_any(self) -> bool:
        """Whether leases are held, or verdicts on some are not confirmed."""
        return len(self._leases) > 0 or any(
            home.verdicts or home.settling for home in list(self.homes.values())
        )

    def to_keep(self, home: Home, gone: Collection[LeaseName]) -> Kept | None:
        """What to extend at *home* while the shell stands still, but for what is *gone*."""
        pull = self._pull
        unsent = [home.verdicts, home.settling, pull and pull.home is home and pull.verdicts]
        return to_keep(
            [lease for lease in self._leases.copy() if lease.origin.home is home],
            [verdicts for verdicts in unsent if verdicts],
            self.options,
            longest_ns=self._lease_ns or 0,
            gone=gone,
        )

    def refused(self, leases: Sequence[Lease]) -> list[Message]:
        """The proxy would not extend them; returns those with handlers: their leases are lost."""
        return [message for lease in leases for message in self._lose(lease)]

    def calm(self) -> None:
        """Reset ``stirred``. Caller: the shell, as it looks at what is due."""
        self.stirred = False

    # ---- messages and handlers ------------------------------------------------------------------

    @property
    def takeable(self) -> int:
        """How many messages ``take`` may give now; too high while leases that ran out wait."""
        return min(len(self._leases.ready), self._leases.concurrency - self._leases.open)

    @property
    def open(self) -> int:
        """Messages with handlers."""
        return self._leases.open

    @property
    def flushed(self) -> bool:
        """True if nothing is under way or waits to be sent."""
        outbound = any(home.busy or home.verdicts for home in self.homes.values())
        return self._pull is None and not outbound

    @property
    def drained(self) -> bool:
        """True if nothing is held either."""
        return not self._leases and self.flushed

    def take(self, now_ns: int) -> Message | None:
        """Give the next message to a handler, or None (S4, S6, S7)."""
        leases = self._leases
        lease = leases.take(now_ns)
        waiting = len(leases.ready)
        if waiting < self._low_water and (self._pull is None or not waiting):
            self.stirred = True
        return lease

    def take_batch(self, now_ns: int, *, most: int) -> list[Message]:
        """Give the next message, and with it what came behind it in its run, *most* in all, to one
        handler; empty if there is none (S4, S6, S7).
        """
        self.stirred = True
        return list(self._leases.take_batch(now_ns, most=most))

    def settle_batch(
        self, messages: Sequence[Message], done: int, outcome: Outcome, now_ns: int
    ) -> None:
        """A handler is done with what ``take_batch`` gave: the first *done* ended well, the next
        one with *outcome*, and what is behind it goes back unhandled (S10).
        """
        for number, message in enumerate(messages):
            if number < done:
                self.settle(message, None, now_ns)
            elif number == done and outcome is not None:
                self.settle(message, outcome, now_ns)
            else:
                self.settle(message, Defer(), now_ns)

    def settle(self, message: Message, outcome: Outcome, now_ns: int) -> None:
        """A handler is done with *message*. Raises KeyError if it was not with one."""
        lease: Lease = message  # type: ignore[assignment]  # there are no others here
        if outcome is None:
            self._judge(lease, None, now_ns, not self._leases.close(lease))
            return
        rest = self._leases.drop_rest(lease) if lease.is_open else []
        self._leases.close(lease)
        self._judge(lease, outcome, now_ns)
        for each in rest:
            self._judge(each, Defer(), now_ns)

    def stop(self, now_ns: int) -> None:
        """Pull no more, and give back what waits (S8)."""
        self.stopping = True
        for lease in self._leases.drop_waiting():
            self._judge(lease, Defer(), now_ns)

    def _judge(self, lease: Lease, outcome: Outcome, now_ns: int, hurry: bool = True) -> None:
        origin = lease.origin
        if (
            origin.home.verdicts.add(
                origin.queue,
                origin.context,
                lease.lease_id,
                outcome,
                lease.deadline_ns,
                now_ns,
                hurry,
            )
            or self.stopping
        ):
            self.stirred = True

    # ---- pulling --------------------------------------------------------------------------------

    def pull_at(self) -> int | None:
        """When the next pull is due; None while none is."""
        if (
            self.stopping
            or self._pull is not None
            or len(self._leases.ready) >= self._low_water
            or len(self._leases) >= self._capacity
        ):
            return None
        return self._pull_retry_at_ns

    def begin_pull(self, now_ns: int) -> consumer.PullRequest:
        """What to send now, verdicts inside (S1). An answer or a failure has to follow."""
        home = self._pull_home or self.homes.get(None)
        verdicts = Verdicts() if home is None else home.take_verdicts()
        request_id, first_sent_ns = self._next_id(now_ns)
        self._pull = _Pull(request_id, first_sent_ns, now_ns, self._linger_ns, verdicts, home)
        topics = self.options.topics
        return consumer.PullRequest(
            groupId=self.options.group,
            topics=None if topics is None else list(topics),
            maxBatchSize=self._capacity - len(self._leases),
            maxLingerTime=self._linger_ns // _MS,
            version=self.options.version,
            clientId=self.options.client_id,
            token=self.options.token,
            manyQueues=True,
            acks=verdicts.batches() or None,
            requestId=request_id,
            maxRun=self.options.max_run if self.options.max_run > 1 else None,
        )

    def _next_id(self, now_ns: int) -> tuple[str, int]:
        """Id of the pull that begins now, and when it was first sent (S9)."""
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
        """Take the messages in; returns how many came. Raises ProtocolError for a malformed answer;
        then nothing has changed, and ``pull_failed`` has to follow.
        """
        pull = self._pull
        assert pull is not None
        parts = [response, *(response.more or ())]
        address = next((part.home for part in parts if part.home), None)
        home = self.homes.get(address) or Home(address)
        length_ms = response.leaseMs or 0
        arrived = [
            leases
            for part in parts
            if (leases := read_leases(part, home, sent_ns=pull.first_sent_ns, length_ms=length_ms))
        ]
        self._pull = None
        self.pull_failures = 0
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
        return sum(map(len, arrived))

    def pull_failed(self, now_ns: int, jitter: float) -> None:
        """The pull had no answer, or a bad one, or no connection could be made for it; its verdicts
        go again (S3).
        """
        pull, self._pull = self._pull, None
        if pull is not None:
            self._failed_pull = pull
            if pull.home is not None:
                pull.home.verdicts.absorb(pull.verdicts)
        self._pull_home = None  # the next connection may lead elsewhere
        self.pull_failures += 1
        self._pull_retry_at_ns = now_ns + backoff_ns(self.pull_failures, jitter)

    # ---- settling and extending -----------------------------------------------------------------

    def control_at(self, home: Home) -> int | None:
        """When a settle or extend is due at *home* (S2, S5); None while none is."""
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
        """What to send to *home* now, if anything. An answer or a failure has to follow."""
        if home.extend_at_ns is not None and home.extend_at_ns <= now_ns:
            due_ns = self._plan_extends(home)  # the lease it was planned for may be gone
            if due_ns is not None and due_ns <= now_ns:
                return self._begin_extend(home, now_ns)
        flush_at = self._flush_at(home)
        if flush_at is None or flush_at > now_ns:
            return None
        return consumer.AckRequest(
            groupId=self.options.group,
            acks=home.begin_settle().batches(),
            clientId=self.options.client_id,
            token=self.options.token,
        )

    def control_answered(self, home: Home, answer: consumer.AckAnswer) -> list[Message]:
        """The settle or extend was answered; returns messages with handlers whose lease is lost."""
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
        """No answer: all goes again (S3). Returns messages with handlers whose lease is lost: its
        time is up, and its proxy says nothing.
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
        hurry = home.verdicts.hurry and self._pull is not None
        if self.stopping or (hurry and not self._leases.ready):
            return since
        last = since + self.options.ack_linger_ns
        if self._pull is None or not hurry:
            return last
        return min(last, max(since, self._pull.sent_ns + _ANSWER_DUE_NS))

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
        """The leases to keep alive at *home*; O(n)."""
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
        if lease.is_open:
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
