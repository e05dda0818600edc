"""Election of a master by a majority of the replicas: terms, votes and the master's lease. Pure.

The rules are Raft's, with the message log of the replicas as the log:

E1. A replica votes once in each term, and remembers that over a restart.
E2. It votes only for a log that is at least as far as its own: first by the epoch of the last
    master whose data it contains, then by its length. So a majority elects no log that lacks a
    message that a majority has.
E3. A replica that hears a master promises it not to vote for the following ``promise_ns``, and
    promises the same at its start, because it may have promised before. A master holds its lease
    for the shorter ``lease_ns``, counted from the time at which it sent what a majority answered.
    So its lease ends before another one can be elected.
E4. A replica asks whether it would win before it begins a term, so that one that was cut off
    interrupts no master when it returns.
E5. A replica that lacks data that it may have confirmed once, because its folder is new or its log
    starts over, is incomplete until it has caught up with a master. Its vote counts only if all
    replicas vote. The first election therefore needs all replicas.

The caller saves ``ballot`` before it sends what a method returns, if ``Step.save`` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple


class Position(NamedTuple):
    """How far a log is: *epoch* of the master that wrote its last data, and its *end* in bytes."""

    epoch: int
    end: int


@dataclass(frozen=True, slots=True)
class LogState:
    """The log of one replica; *complete*: rule E5."""

    position: Position
    complete: bool


@dataclass(frozen=True, slots=True)
class Ballot:
    """Memory of a replica over a restart: the newest term, and its vote in it (0: none)."""

    term: int = 0
    voted_for: int = 0

    @classmethod
    def from_table(cls, content: Mapping[str, Any]) -> Ballot:
        """Read the table; raise ValueError on other content."""
        if not content:
            return cls()
        term, voted_for = content.get("term"), content.get("votedFor")
        if type(term) is not int or type(voted_for) is not int or term < 0 or voted_for < 0:
            raise ValueError("not a table of an election: expected term and votedFor")
        return cls(term, voted_for)

    def to_table(self) -> dict[str, int]:
        """Inverse of ``from_table``."""
        return {"term": self.term, "votedFor": self.voted_for}


@dataclass(frozen=True, slots=True)
class ElectionTimes:
    """Durations in nanoseconds, derived from the one that operators choose."""

    promise_ns: int

    @property
    def lease_ns(self) -> int:
        """Lease of a master: shorter than the promise, by more than clocks differ in that time."""
        return self.promise_ns * 3 // 4

    @property
    def beat_ns(self) -> int:
        """Interval of the master's beats."""
        return self.promise_ns // 8

    @property
    def again_ns(self) -> tuple[int, int]:
        """Shortest and longest time between two candidacies."""
        return self.promise_ns // 4, self.promise_ns * 3 // 4


@dataclass(frozen=True, slots=True)
class VoteRequest:
    """A candidate's request; *trial*: only asks how the vote would be (rule E4)."""

    term: int
    candidate: int
    position: Position
    trial: bool


@dataclass(frozen=True, slots=True)
class VoteAnswer:
    """Answer of a voter: its term, its vote, and whether its log is complete."""

    term: int
    granted: bool
    complete: bool


@dataclass(frozen=True, slots=True)
class Beat:
    """Sign of life of the master of *term*; *leaves*: it ends, elect another one at once."""

    term: int
    master: int
    leaves: bool = False


@dataclass(frozen=True, slots=True)
class BeatAnswer:
    """*follows*: the replica accepts the master and has made the promise of rule E3."""

    term: int
    follows: bool


class Stance(Enum):
    """The part of a replica in its term."""

    FOLLOWER = "follower"
    ASKS = "asks whether it would win"
    CANDIDATE = "candidate"
    MASTER = "master"


@dataclass(frozen=True, slots=True)
class Step:
    """Work for the caller: save the ballot first, then send to all other voters."""

    save: bool = False
    ask: VoteRequest | None = None
    beat: Beat | None = None


NOTHING = Step()


@dataclass(slots=True)
class Election:
    """One replica's view. All times are monotonic nanoseconds of its own clock.

    Args:
        own_id: id of this replica, from 1 on
        voters: ids of all replicas, this one included
        ballot: as saved
        times: durations
        between: returns a random whole number between two, used to spread candidacies
        started_ns: now
    """

    own_id: int
    voters: frozenset[int]
    ballot: Ballot
    times: ElectionTimes
    between: Callable[[int, int], int]
    started_ns: int
    stance: Stance = Stance.FOLLOWER
    #: Id of the master that this replica follows, 0 if none.
    master: int = 0
    #: End of the log with which this replica was last elected.
    elected_end: int = 0
    _promised_until_ns: int = 0
    _candidacy_ns: int = 0  # time of the next one
    _beat_due_ns: int = 0
    _request: VoteRequest | None = None
    _votes: dict[int, bool] = field(default_factory=dict)  # by voter: complete
    _answered: dict[int, int] = field(default_factory=dict)  # by follower: time of the beat sent
    _left: bool = False

    def __post_init__(self) -> None:
        # A replica without a ballot has never promised anything.
        if self.ballot != Ballot():
            self._promised_until_ns = self.started_ns + self.times.promise_ns
        self._put_candidacy_off(self.started_ns)

    @property
    def term(self) -> int:
        """The newest term that this replica knows."""
        return self.ballot.term

    @property
    def majority(self) -> int:
        """Number of replicas that decide."""
        return len(self.voters) // 2 + 1

    @property
    def lease_until_ns(self) -> int:
        """End of the lease of this master; 0 if it is none, or was not confirmed yet."""
        if self.stance is not Stance.MASTER:
            return 0
        sent = sorted(self._answered.values(), reverse=True)
        others = self.majority - 1
        return sent[others - 1] + self.times.lease_ns if len(sent) >= others else 0

    def has_lease(self, now_ns: int) -> bool:
        """Return whether this replica is the only master now."""
        return now_ns < self.lease_until_ns

    def next_ns(self) -> int:
        """Return the time at which ``tick`` has something to do."""
        return self._beat_due_ns if self.stance is Stance.MASTER else self._candidacy_ns

    # -- time ----------------------------------------------------------------------------------

    def tick(self, now_ns: int, log: LogState | None) -> Step:
        """Beat, or become a candidate, if it is time. *log*: None while it cannot be used."""
        if self.stance is Stance.MASTER:
            if now_ns < self._beat_due_ns:
                return NOTHING
            self._beat_due_ns = now_ns + self.times.beat_ns
            return Step(beat=Beat(self.term, self.own_id))
        if now_ns < self._candidacy_ns:
            return NOTHING
        # Sooner than the first time: after a split vote no replica hears a master.
        self._candidacy_ns = now_ns + self.between(*self.times.again_ns)
        if log is None or self._left or now_ns < self._promised_until_ns:
            return NOTHING
        self.stance, self.master = Stance.ASKS, 0
        return self._campaign(now_ns, log, trial=True)

    def resign(self, now_ns: int) -> None:
        """Stop being the master, and let others be elected first."""
        self._follow_none(now_ns)
        self._candidacy_ns = now_ns + 2 * self.times.promise_ns

    def leave(self, now_ns: int) -> Step:
        """End for good; a master asks the others to elect another one at once."""
        was_master = self.stance is Stance.MASTER
        self._left = True
        self._follow_none(now_ns)
        return Step(beat=Beat(self.term, self.own_id, leaves=True)) if was_master else NOTHING

    # -- votes ---------------------------------------------------------------------------------

    def asked(
        self, request: VoteRequest, now_ns: int, log: LogState | None
    ) -> tuple[VoteAnswer, bool]:
        """Return the answer to a candidate, and whether the ballot must be saved first."""
        complete = log is not None and log.complete
        no = VoteAnswer(self.term, granted=False, complete=complete)
        if request.candidate not in self.voters or request.term < self.term:
            return no, False
        if now_ns < self._promised_until_ns or self.has_lease(now_ns):
            return no, False
        would = log is not None and not self._left and request.position >= log.position
        if request.trial:
            granted = would and request.term > self.term
            return VoteAnswer(self.term, granted=granted, complete=complete), False
        changed = request.term > self.term
        if changed:
            self._adopt(request.term, now_ns)
        granted = would and self.ballot.voted_for in (0, request.candidate)
        if granted and self.ballot.voted_for == 0:
            self.ballot = replace(self.ballot, voted_for=request.candidate)
            self._put_candidacy_off(now_ns)
            changed = True
        return VoteAnswer(self.term, granted=granted, complete=complete), changed

    def answered(
        self,
        voter: int,
        request: VoteRequest,
        answer: VoteAnswer,
        now_ns: int,
        log: LogState | None,
    ) -> Step:
        """Process a voter's answer to *request*."""
        if answer.term > self.term and not answer.granted:
            self._adopt(answer.term, now_ns)
            return Step(save=True)
        if request != self._request or not answer.granted or voter not in self.voters:
            return NOTHING
        self._votes[voter] = answer.complete
        if not self._has_won():
            return NOTHING
        self._request = None
        if log is None or log.position < request.position:
            self._follow_none(now_ns)  # its log was shortened since
            return NOTHING
        if request.trial:
            self.stance = Stance.CANDIDATE
            self.ballot = Ballot(self.term + 1, self.own_id)
            return replace(self._campaign(now_ns, log, trial=False), save=True)
        self.elected_end = request.position.end
        return self._become_master(now_ns)

    # -- beats ---------------------------------------------------------------------------------

    def heard(self, beat: Beat, now_ns: int) -> tuple[BeatAnswer, bool]:
        """Return the answer to a master's beat, and whether the ballot must be saved first."""
        if (
            beat.term < self.term
            or beat.master not in self.voters
            or (beat.term == self.term and self.stance is Stance.MASTER)
        ):
            return BeatAnswer(self.term, follows=False), False
        changed = beat.term > self.term
        if changed:
            self._adopt(beat.term, now_ns)
        self.stance, self._request = Stance.FOLLOWER, None
        if beat.leaves:
            self.master, self._promised_until_ns = 0, now_ns
            self._candidacy_ns = now_ns + self.between(0, self.times.beat_ns)
        else:
            self.master = beat.master
            self._promised_until_ns = now_ns + self.times.promise_ns
            self._put_candidacy_off(now_ns)
        return BeatAnswer(self.term, follows=True), changed

    def beat_answered(
        self, follower: int, beat: Beat, sent_ns: int, answer: BeatAnswer, now_ns: int
    ) -> Step:
        """Process the answer to a beat that was sent at *sent_ns*."""
        if answer.term > self.term:
            self._adopt(answer.term, now_ns)
            return Step(save=True)
        if self.stance is Stance.MASTER and beat.term == self.term and answer.follows:
            self._answered[follower] = max(sent_ns, self._answered.get(follower, 0))
        return NOTHING

    # -- changes of stance ---------------------------------------------------------------------

    def _campaign(self, now_ns: int, log: LogState, *, trial: bool) -> Step:
        term = self.term + 1 if trial else self.term
        self._request = VoteRequest(term, self.own_id, log.position, trial)
        self._votes = {self.own_id: log.complete}
        return Step(ask=self._request)

    def _has_won(self) -> bool:
        return sum(self._votes.values()) >= self.majority or len(self._votes) == len(self.voters)

    def _become_master(self, now_ns: int) -> Step:
        self.stance, self.master = Stance.MASTER, self.own_id
        self._answered = {}
        self._beat_due_ns = now_ns
        return self.tick(now_ns, None)

    def _adopt(self, term: int, now_ns: int) -> None:
        self.ballot = Ballot(term)
        self._follow_none(now_ns)

    def _follow_none(self, now_ns: int) -> None:
        if self.stance is Stance.MASTER:
            self._put_candidacy_off(now_ns)
        self.stance, self.master, self._request = Stance.FOLLOWER, 0, None

    def _put_candidacy_off(self, now_ns: int) -> None:
        promise_ns = self.times.promise_ns
        self._candidacy_ns = now_ns + promise_ns + self.between(0, promise_ns // 2)
