"""A thin client's session compared with a model of a proxy's answers."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from thin_client.backoff import backoff_ns
from thin_client.lease import Home
from thin_client.message import Defer, Message, Outcome, Reject, Retry, outcome_name
from thin_client.session import Session
from thin_client.session_options import SessionOptions
from thrift_idl import consumer

MS = 1_000_000
LINGER_NS, ANSWER_DUE_NS, ANSWER_NEAR_NS = 20 * MS, 3 * MS, 1 * MS
CONCURRENCY, PREFETCH = 3, 2
KEYS = st.sampled_from([b"x", b"x", b"y", b"z", None])
OUTCOMES = st.sampled_from([None, Retry(), Retry(0.5), Reject("bad"), Defer(), ValueError("x")])


@dataclass(eq=False)
class Given:
    """The model's state of one lease."""

    number: int
    key: bytes | None
    home: str
    deadline_ns: int
    length_ns: int
    message: Message | None = None  # with a handler
    outcome: str | None = None
    settled_ns: int = 0
    in_flight: bool = False
    confirmed: bool = False
    #: Refused, or expired at a silent proxy: need not be handled, and its verdict may be dropped.
    lost: bool = False
    run: object = None
    hurry: bool = True  # its verdict may release a message for which a pull waits


class SessionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000 * MS
        self.session = Session(
            SessionOptions(
                group="g",
                topics=["t"],
                client_id="c",
                version="v",
                concurrency=CONCURRENCY,
                prefetch=PREFETCH,
                ack_linger_ns=LINGER_NS,
            )
        )
        self.given: dict[int, Given] = {}
        self.batches: list[list[Given]] = []  # with handlers
        self.home = "a:1"  # the proxy of the next pull
        self.ids: dict[str, int] = {}  # pull IDs in order, with the time of their first sending
        self.pull_failed = False  # whether the last pull failed
        self.lease_ns = 0
        self.expects_more = False  # the last answer brought more than half of what was asked for
        self.taken_ns = 0  # time when a handler last got a message
        self.pull: tuple[consumer.PullRequest, int, list[Given]] | None = None
        self.under_way: dict[Home, tuple[object, int, list[Given]]] = {}
        self.failed: dict[str, tuple[int, int]] = {}  # failures in a row, and earliest retry

    # ---- derived state of the model -------------------------------------------------------------

    def held(self) -> list[Given]:
        return [each for each in self.given.values() if each.outcome is None and not each.lost]

    def open(self) -> list[Given]:
        return [each for each in self.given.values() if each.message and each.outcome is None]

    def singles(self) -> list[Given]:
        together = [each for batch in self.batches for each in batch]
        return [each for each in self.open() if each not in together]

    def handlers(self) -> int:
        return len(self.singles()) + len(self.batches)

    def pending(self, home: str) -> list[Given]:
        return [
            each
            for each in self.given.values()
            if each.home == home and each.outcome and not (each.confirmed or each.in_flight)
        ]

    def carried(self, batches: list[consumer.AckBatch] | None, home: str | None) -> list[Given]:
        """Return the leases of a request's verdicts, settled so, neither pending nor confirmed."""
        found = []
        for batch in batches or ():
            assert batch.context.topic == "t"
            named = [(number, "ok") for number in batch.acked or ()]
            named += [(n.leaseId, "reject" if n.reject else "retry") for n in batch.nacked or ()]
            named += [(number, "defer") for number in batch.released or ()]
            for number, verdict in named:
                each = self.given[number]
                assert (each.outcome, each.in_flight, each.confirmed) == (verdict, False, False)
                assert home is None or each.home == home
                assert batch.context.qid == each.home  # the model puts the home into the context
                each.in_flight = True
                found.append(each)
        return found

    def returned(self, carried: list[Given], *, confirmed: bool) -> None:
        for each in carried:
            each.in_flight = False
            each.confirmed = confirmed

    # ---- handlers -------------------------------------------------------------------------------

    @rule()
    def handlers_take(self) -> None:
        while (message := self.session.take(self.now)) is not None:
            self.taken(message)

    def taken(self, message: Message) -> None:
        each = self.given[message.lease_id]
        assert each.message is None, "taken twice"
        assert not each.lost
        assert each.deadline_ns > self.now, "S4"
        assert each.key is None or each.key not in {other.key for other in self.open()}, "S6"
        each.message = message
        self.taken_ns = self.now
        assert self.handlers() <= CONCURRENCY, "S7"
        assert not self.session.stopping, "S8"

    @rule(most=st.integers(1, 4))
    def a_handler_takes_a_batch(self, most: int) -> None:
        messages = self.session.take_batch(self.now, most=most)
        assert len(messages) <= most
        if messages:
            self.taken(messages[0])
            batch = [self.given[message.lease_id] for message in messages]
            for each, message in zip(batch[1:], messages[1:], strict=True):
                assert each.message is None
                assert not each.lost
                assert each.run is batch[0].run
                assert each.deadline_ns > self.now, "S4"
                each.message = message
            assert [each.number for each in batch] == sorted(each.number for each in batch)
            self.batches.append(batch)

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), done=st.integers(0, 4), outcome=OUTCOMES)
    def settle_batch(self, data: st.DataObject, done: int, outcome: Outcome) -> None:
        batch = self.batches.pop(data.draw(st.integers(0, len(self.batches) - 1)))
        if outcome is None:
            done = len(batch)
        messages = [each.message for each in batch]
        self.session.settle_batch(messages, done, outcome, self.now)
        for number, each in enumerate(batch):
            if each.outcome is None:
                ended = None if number < done else outcome if number == done else Defer()
                self.settled(each, ended)

    @precondition(lambda self: self.singles())
    @rule(data=st.data(), outcome=OUTCOMES)
    def settle(self, data: st.DataObject, outcome: Outcome) -> None:
        each = data.draw(st.sampled_from(self.singles()))
        self.session.settle(each.message, outcome, self.now)
        self.settled(each, outcome)

    def settled(self, each: Given, outcome: Outcome) -> None:
        each.outcome, each.settled_ns = outcome_name(outcome), self.now
        same_key = [other for other in self.held() if other.key == each.key is not None]
        each.hurry = outcome is not None or not same_key
        for other in same_key if outcome is not None else ():
            if other.run is each.run and other.message is None:
                other.outcome, other.settled_ns = "defer", self.now  # S10

    @rule(ms=st.sampled_from([1, 2, 7, 20, 90, 400, 1200]))
    def time_passes(self, ms: int) -> None:
        self.now += ms * MS

    @precondition(lambda self: len(self.given) > 12)
    @rule()
    def stop(self) -> None:
        self.session.stop(self.now)
        for each in self.held():
            if each.message is None:
                each.outcome, each.settled_ns = "defer", self.now

    # ---- pulling --------------------------------------------------------------------------------

    def pull_due(self) -> bool:
        at = self.session.pull_at()
        return at is not None and at <= self.now

    @precondition(lambda self: self.pull is None and self.pull_due())
    @rule()
    def begin_pull(self) -> None:
        request = self.session.begin_pull(self.now)
        open_or_waiting = [e for e in self.given.values() if e.outcome is None and e.message]
        open_or_waiting += [e for e in self.held() if e.message is None]
        assert request.maxBatchSize == CONCURRENCY + PREFETCH - len(open_or_waiting), "S7"
        self.judge_id(request.requestId)
        self.pull = (request, self.now, self.carried(request.acks, None))
        self.pull_failed = False

    def judge_id(self, request_id: str) -> None:
        """S9: the failed pull's ID while its leases may be alive, else a new one."""
        ids = list(self.ids)
        if not self.pull_failed:
            assert request_id not in ids
        elif request_id in ids:
            assert request_id == ids[-1]
        else:
            assert self.now - self.ids[ids[-1]] >= self.lease_ns > 0
        self.ids.setdefault(request_id, self.now)

    @precondition(lambda self: self.pull is not None)
    @rule(
        keys=st.lists(KEYS, min_size=1, max_size=CONCURRENCY + PREFETCH) | st.just([]),
        length_ms=st.sampled_from([300, 600]),
    )
    def pull_answered(self, keys: list[bytes | None], length_ms: int) -> None:
        assert self.pull is not None
        request, _, carried = self.pull
        sent_ns = self.ids[request.requestId]
        messages = []
        runs = [{key: object() for key in keys} for _ in range(2)]
        for key in keys[: request.maxBatchSize]:
            number = len(self.given) + 1
            deadline_ns = sent_ns + length_ms * MS
            each = Given(number, key, self.home, deadline_ns, length_ms * MS)
            each.run = runs[len(messages) >= 2][key]
            if self.session.stopping:
                each.outcome, each.settled_ns = "defer", self.now
            self.given[number] = each
            messages.append(
                consumer.Message(leaseId=number, offset=number, value=b"", orderKey=key)
            )
        context = consumer.Context(groupId="g", topic="t", qid=self.home)
        response = consumer.PullResponse(
            context=context, messages=messages[:2], leaseMs=length_ms, home=self.home
        )
        response.more = [consumer.PullResponse(context=context, messages=messages[2:])]
        assert self.session.pull_answered(response, self.now) == len(messages)
        if messages:
            self.lease_ns = length_ms * MS
        self.returned(carried, confirmed=True)
        self.expects_more = 2 * len(messages) > request.maxBatchSize
        self.pull = None

    @precondition(lambda self: self.pull is not None)
    @rule(next_home=st.sampled_from(["a:1", "b:2"]))
    def pull_fails(self, next_home: str) -> None:
        assert self.pull is not None
        self.session.pull_failed(self.now, 0.0)
        self.returned(self.pull[2], confirmed=False)
        self.home, self.pull, self.pull_failed = next_home, None, True
        self.expects_more = False
        assert self.session.pull_at() is None or self.session.pull_at() > self.now

    # ---- settling and extending -----------------------------------------------------------------

    @rule()
    def begin_controls(self) -> None:
        for home in self.session.homes.values():
            at = self.session.control_at(home)
            if at is None or at > self.now:
                continue
            request = self.session.begin_control(home, self.now)
            if isinstance(request, consumer.AckRequest):
                carried = self.carried(request.acks, home.address)
                assert carried
                self.under_way[home] = (request, self.now, carried)
            elif request is not None:
                named = [self.given[ref.leaseId] for ref in request.leases]
                assert set(named) == {e for e in self.given.values() if self.alive(e, home)}
                self.under_way[home] = (request, self.now, named)

    def alive(self, each: Given, home: Home) -> bool:
        return each.home == home.address and each.outcome is None and not each.lost

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def control_answered(self, data: st.DataObject) -> None:
        home = data.draw(st.sampled_from(list(self.under_way)))
        request, asked_ns, leases = self.under_way.pop(home)
        refused: list[Given] = []
        if isinstance(request, consumer.ExtendRequest):
            refused = [each for each in leases if data.draw(st.integers(0, 4)) == 0]
        context = consumer.Context(groupId="g", topic="t", qid=home.address)
        answer = consumer.AckAnswer(
            notHeld=[consumer.LeaseRef(context=context, leaseId=e.number) for e in refused]
        )
        lost = self.session.control_answered(home, answer, self.now)
        self.failed.pop(home.address or "", None)
        assert {m.lease_id for m in lost} == {
            e.number for e in refused if e.message and e.outcome is None
        }
        if isinstance(request, consumer.AckRequest):
            self.returned(leases, confirmed=True)
            return
        for each in leases:
            if each in refused and each.outcome is None:
                each.lost = True
            elif each.outcome is None:
                each.length_ns = request.ms * MS
                each.deadline_ns = asked_ns + each.length_ns

    @precondition(lambda self: self.under_way)
    @rule(data=st.data())
    def control_fails(self, data: st.DataObject) -> None:
        home = data.draw(st.sampled_from(list(self.under_way)))
        request, _, leases = self.under_way.pop(home)
        lost = self.session.control_failed(home, self.now, 0.0)
        failures = self.failed.get(home.address or "", (0, 0))[0] + 1
        self.failed[home.address or ""] = (failures, self.now + backoff_ns(failures, 0.0))
        if isinstance(request, consumer.AckRequest):
            self.returned(leases, confirmed=False)
        late = [e for e in self.given.values() if self.alive(e, home) and e.deadline_ns <= self.now]
        assert {message.lease_id for message in lost} == {e.number for e in late if e.message}
        for each in late:
            each.lost = True
        pending = self.pending(home.address or "")
        if all(each.deadline_ns <= self.now for each in pending):
            for each in pending:
                each.confirmed = True  # S3: these verdicts are abandoned

    # ---- invariants -----------------------------------------------------------------------------

    @invariant()
    def nothing_waits_too_long(self) -> None:
        """S2 and S5: a request for each waiting verdict or lease is due in time."""
        for address in ("a:1", "b:2"):
            pending = self.pending(address)
            leases = [e for e in self.held() if e.home == address]
            if not (pending or leases):
                continue
            home = self.session.homes[address]  # KeyError: forgotten
            if home in self.under_way:
                assert self.session.control_at(home) is None
                continue
            hurry = any(each.hurry for each in pending)
            limits = [self.flush_limit(e.settled_ns, hurry=hurry) for e in pending]
            limits += [e.deadline_ns - 2 * e.length_ns // 3 for e in leases]
            at = self.session.control_at(home)
            assert at is not None
            assert at <= max(min(limits), self.failed.get(address, (0, 0))[1])

    def flush_limit(self, settled_ns: int, *, hurry: bool) -> int:
        if self.session.stopping:
            return settled_ns
        linger_end_ns = settled_ns + LINGER_NS
        if self.pull is None or not hurry:
            return linger_end_ns
        until_ns = self.pull[1] + ANSWER_DUE_NS
        if not self.free():
            until_ns = min(until_ns, self.taken_ns + ANSWER_NEAR_NS if self.expects_more else 0)
        return min(linger_end_ns, max(settled_ns, until_ns))

    def free(self) -> list[Given]:
        """Return messages that can go to a handler."""
        open_keys = {each.key for each in self.open()}
        return [
            each
            for each in self.held()
            if each.message is None and (each.key is None or each.key not in open_keys)
        ]

    @invariant()
    def a_free_handler_gets_what_waits(self) -> None:
        """With a free handler, a message whose key is free can be taken."""
        if self.free() and self.handlers() < CONCURRENCY:
            assert self.session.takeable > 0

    def teardown(self) -> None:
        """Finally every lease has a confirmed verdict or was lost."""
        for batch in self.batches:
            self.session.settle_batch([e.message for e in batch], len(batch), None, self.now)
            for each in batch:
                each.outcome, each.settled_ns = "ok", self.now
        for each in self.open():
            self.session.settle(each.message, None, self.now)
            each.outcome, each.settled_ns = "ok", self.now
        self.stop()
        if self.pull is not None:
            self.session.pull_answered(consumer.PullResponse(messages=[]), self.now)
            self.returned(self.pull[2], confirmed=True)
        for _ in range(3):
            for home, (request, _, leases) in self.under_way.items():
                self.session.control_answered(home, consumer.AckAnswer(notHeld=[]), self.now)
                if isinstance(request, consumer.AckRequest):
                    self.returned(leases, confirmed=True)
            self.under_way.clear()
            self.now += 10_000 * MS
            self.begin_controls()
        assert self.session.drained
        assert all(each.confirmed or each.lost for each in self.given.values())
