"""Both sides of a read session against a model without differences: a full list each time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from broker_core.broker.pulling.read_session import ReadSession as BrokersSession
from broker_core.broker.pulling.read_session import size_of
from broker_core.client.read_session import ReadSession, Request
from broker_core.errors import BrokerError
from broker_core.names import Group, QueueName, Topic
from broker_core.remoting.codes import ResponseCode
from broker_core.remoting.read_sessions import (
    Part,
    Question,
    Reading,
    changes_from_bytes,
    changes_to_bytes,
    parts_from_bytes,
    parts_to_bytes,
)
from tests.support.examples import examples

BILLING = Group("billing")


def queue(number: int) -> QueueName:
    return QueueName(Topic(f"orders-{number % 3}"), "broker-a", number)


@dataclass
class Broker:
    """The broker's end of one connection; queues have messages or not."""

    session: BrokersSession | None = None
    filled: set[tuple[Topic, int]] = field(default_factory=set)

    def take(self, request: Request) -> BrokersSession:
        """Apply a request as the shell does. Raises BrokerError."""
        session, epoch, changes = request
        changes = changes_from_bytes(changes_to_bytes(changes))
        if epoch == 0:
            self.session = BrokersSession(session)
        if self.session is None:
            raise BrokerError(ResponseCode.NO_SUCH_SESSION, "there is no session")
        state = self.session
        state.advance(session, epoch)
        for slot in changes.ended:
            state.end(slot)
        for reading in changes.begun:
            state.begin(reading)
        for question in changes.questions:
            state.ask(question)
        return state

    def look(self, most: int) -> list[Part]:
        """Answer at most *most* due questions."""
        parts: list[Part] = []
        state = self.session
        while state is not None and len(parts) < most and (due := state.next()) is not None:
            reading, (question, epoch) = due
            assert reading is not None, "the client asks about its own slots only"
            if (reading.topic, reading.queue_id) in self.filled:
                state.answered(question.slot)
                parts.append(Part(question.slot, epoch, 0, next_offset=question.offset + 1))
            else:
                state.has_nothing(question.slot)
        return parts

    def fill(self, name: tuple[Topic, int], *, wanted: bool) -> None:
        if wanted:
            self.filled.add(name)
        for slot, reading in (self.session.readings if self.session else {}).items():
            if (reading.topic, reading.queue_id) == name and self.session is not None:
                (self.session.happened if wanted else self.session.passed_over)(slot)


class Sessions(RuleBasedStateMachine):
    """A client and a broker, with requests and answers on their way."""

    def __init__(self) -> None:
        super().__init__()
        self.client = ReadSession(0)
        self.broker = Broker()
        self.numbers = 0
        self.requests: deque[Request] = deque()  # on their way; the connection keeps their order
        self.answers: deque[tuple[Request, list[Part] | None]] = deque()  # None: refused
        self.read: dict[int, QueueName] = {}
        self.asked: dict[int, int] = {}  # offset by slot, as the caller knows it
        self.tags: dict[int, str] = {}

    # ---- what the reader of a queue does --------------------------------------------------------

    @rule(number=st.integers(0, 7), tags=st.sampled_from(["*", "a", "a || b"]))
    def begin(self, number: int, tags: str) -> None:
        slot = self.client.begin(BILLING, queue(number), tags=tags, life=number or None)
        assert slot not in self.read
        self.read[slot], self.tags[slot] = queue(number), tags

    @precondition(lambda self: self.read)
    @rule(which=st.integers(0), offset=st.integers(0, 1 << 40))
    def ask(self, which: int, offset: int) -> None:
        slot = sorted(self.read)[which % len(self.read)]
        self.client.ask(slot, offset=offset, max_messages=1 + offset % 256)
        self.asked[slot] = offset

    @precondition(lambda self: self.read)
    @rule(which=st.integers(0))
    def end(self, which: int) -> None:
        slot = sorted(self.read)[which % len(self.read)]
        self.client.end(slot)
        del self.read[slot]
        self.asked.pop(slot, None)

    # ---- the wire -------------------------------------------------------------------------------

    @precondition(lambda self: len(self.requests) + len(self.answers) < 3)
    @rule()
    def send(self) -> None:
        self.requests.append(self.client.next_request())

    @precondition(lambda self: self.requests)
    @rule(most=st.integers(0, 4), again=st.booleans())
    def arrive(self, most: int, again: bool) -> None:
        request = self.requests.popleft()
        try:
            state = self.broker.take(request)
        except BrokerError:
            self.broker.session = None
            self.answers.append((request, None))
            return
        if again:
            state.look_again()
        self.answers.append((request, self.broker.look(most)))

    @precondition(lambda self: self.answers)
    @rule(first=st.booleans())
    def answer(self, first: bool) -> None:
        request, parts = self.answers.popleft() if first else self.answers.pop()
        if parts is None:
            if request.session == self.client.number:
                self._restart()
            return
        parts = parts_from_bytes(parts_to_bytes(parts))
        for part in self.client.answers(request.session, parts):
            assert part.next_offset == self.asked.pop(part.slot) + 1, "the newest question"

    @rule()
    def lose_connection(self) -> None:
        """Requests and answers on their way are lost, and the broker's session."""
        self.requests.clear()
        self.answers.clear()
        self.broker.session = None
        self._restart()

    @rule(lost=st.booleans())
    def time_out(self, lost: bool) -> None:
        """The client gives a request up, which the broker may get or not."""
        if lost and self.requests:
            self.requests.pop()
        self.client.drop_questions()
        self.asked.clear()
        self._restart()

    @rule(number=st.integers(0, 7), wanted=st.booleans())
    def store(self, number: int, wanted: bool) -> None:
        self.broker.fill((queue(number).topic, number), wanted=wanted)

    @rule(number=st.integers(0, 7))
    def empty(self, number: int) -> None:
        self.broker.filled.discard((queue(number).topic, number))

    def _restart(self) -> None:
        self.numbers += 1
        self.client.restart(self.numbers)

    # ---- what must be true ----------------------------------------------------------------------

    @invariant()
    def the_client_knows_its_questions(self) -> None:
        assert self.client.has_questions == bool(self.asked)
        assert len(self.client) == len(self.read)

    @invariant()
    def differences_make_the_whole(self) -> None:
        """Once every request has arrived and every answer is lost, both sides agree."""
        if self.requests or self.answers or self.client.is_changed or self.broker.session is None:
            return
        state = self.broker.session
        if state.number != self.client.number:
            return
        theirs = {
            slot: (each.topic, each.queue_id, each.tags) for slot, each in state.readings.items()
        }
        ours = {
            slot: (each.topic, each.queue_id, self.tags[slot]) for slot, each in self.read.items()
        }
        assert theirs == ours
        assert {question.slot: question.offset for question in state.open} == self.asked
        assert state.size == sum(map(size_of, state.readings.values()))

    def teardown(self) -> None:
        """From any state, one more round trip without faults answers all that has messages."""
        self.requests.clear()
        self.answers.clear()
        for _ in range(2):  # the first one may be refused
            request = self.client.next_request()
            try:
                state = self.broker.take(request)
            except BrokerError:
                self._restart()
                continue
            for slot in state.readings:
                state.happened(slot)
            for part in self.client.answers(request.session, self.broker.look(1000)):
                del self.asked[part.slot]
            there = {
                slot
                for slot, each in self.read.items()
                if (each.topic, each.queue_id) in self.broker.filled
            }
            assert not there & self.asked.keys()
            return


def test_any_sequence_of_differences_equals_the_whole() -> None:
    run_state_machine_as_test(
        Sessions, settings=settings(max_examples=examples(100), stateful_step_count=40)
    )


def test_a_queue_that_was_answered_comes_after_all_others() -> None:
    """However many messages it has, each of the others is looked at before its next turn."""
    session = BrokersSession(1)
    session.advance(1, 0)
    for slot in range(5):
        session.begin(Reading(slot, BILLING, Topic("orders"), slot, "*", None))
        session.ask(Question(slot, 0, 1))
    seen = []
    for epoch in range(1, 21):
        due = session.next()
        assert due is not None
        slot = due[1].question.slot
        seen.append(slot)
        session.answered(slot)
        session.advance(1, epoch)
        session.ask(Question(slot, epoch, 1))
    assert seen == [0, 1, 2, 3, 4] * 4
