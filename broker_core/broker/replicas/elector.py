"""Runs the election among the replicas of one broker name: clock, disk and requests of its core.

It lives longer than an open store: a replica that becomes master opens its store again, and keeps
its lease meanwhile. No request is sent or answered before the ballot is on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal, NamedTuple, Protocol

import structlog

from broker_core import chance
from broker_core.broker.replicas.election import (
    Ballot,
    Beat,
    BeatAnswer,
    Election,
    ElectionTimes,
    LogState,
    Position,
    Stance,
    Step,
    VoteAnswer,
    VoteRequest,
)
from broker_core.broker.replicas.log_identity import LogIdentity
from broker_core.broker.settings import BrokerSettings
from broker_core.client.connection_pool import ConnectionPool
from broker_core.clock import now_ns
from broker_core.errors import BrokerError, InvalidCommand, RemotingError, StoreError
from broker_core.rare_warnings import RareWarnings
from broker_core.remoting.codes import RequestCode, ResponseCode, request_name
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.election_headers import (
    BeatHeader,
    BeatResponse,
    VoteHeader,
    VoteResponse,
)
from broker_core.remoting.header_fields import Header
from broker_core.remoting.signing import Credentials
from broker_core.remoting_channel import Answer, Handler, RemotingChannel
from broker_core.store.message_store import MessageStore
from broker_core.store.tables import JsonTable
from broker_core.tasks import cancel_and_wait, in_thread, spawn
from broker_core.tls import ClientContext

#: A master that cannot open its store for this time lets another one be elected.
OPEN_WITHIN_NS = 30_000_000_000
#: Terms further ahead are not believed; elections end in one term each.
_MOST_TERMS_AHEAD = 1_000_000

_log = structlog.get_logger("broker")


class Life(NamedTuple):
    """The role that a broker should be open in, with the epoch of a master."""

    role: Literal["master", "slave"]
    epoch: int = 0


class Candidate(Protocol):
    """The open store of this replica, as the election sees it."""

    @property
    def log_id(self) -> str | None:
        """Id of the log, None while there is none."""

    @property
    def has_failed(self) -> bool:
        """True once the disk refused a sync: the log is of no use until a restart."""

    def log_state(self) -> LogState | None:
        """Return the state of the log, None if it cannot be used."""


class Elector:
    """The election at one replica. One event loop only."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        table: JsonTable,
        ballot: Ballot,
        credentials: Credentials | None,
        tls: ClientContext | None,
    ) -> None:
        """Begin with *ballot*, which *table* contains; see ``load``."""
        self._settings = settings
        self._table = table
        self._saved = ballot
        self.started_ns = now_ns()
        self._election = Election(
            settings.broker_id,
            frozenset(settings.replica_addresses),
            ballot,
            ElectionTimes(int(settings.election_timeout_s * 1e9)),
            _between,
            self.started_ns,
        )
        self._pool = ConnectionPool(credentials=credentials, tls=tls)
        self._candidate: Candidate | None = None
        self._usable_ns = self.started_ns  # when the store was last open
        self._turn = asyncio.Lock()  # held while the ballot is saved
        self._task: asyncio.Task[None] | None = None
        self._asking: set[asyncio.Task[None]] = set()
        self._warnings = RareWarnings("broker")
        #: Set when ``life`` may have changed.
        self.changed = asyncio.Event()

    @classmethod
    def load(
        cls,
        settings: BrokerSettings,
        store: MessageStore,
        *,
        credentials: Credentials | None,
        tls: ClientContext | None,
    ) -> Elector:
        """Read the ballot. Blocks; raises StoreError if it cannot be used."""
        table = store.table("election")
        try:
            if not table.path.exists():
                # Before an election was configured, epochs were those of promotions.
                epoch = LogIdentity.from_table(store.table("replication").load()).epoch
                ballot = Ballot(term=epoch)
            elif (content := table.load_newest()) is None:
                raise ValueError("it is damaged, and an older vote must not be used")
            else:
                ballot = Ballot.from_table(content)
        except (ValueError, OSError) as error:
            raise StoreError(
                f"{table.path} cannot be used: {error}; start this replica with an empty data"
                " folder, so that it copies the master's log"
            ) from error
        return cls(settings, table=table, ballot=ballot, credentials=credentials, tls=tls)

    # -- for the broker ------------------------------------------------------------------------

    @property
    def life(self) -> Life:
        """The role that this broker should have now."""
        if self._election.stance is Stance.MASTER:
            return Life("master", self._election.term)
        return Life("slave")

    @property
    def term(self) -> int:
        """The newest term that this replica knows: the epoch of its master, if there is one."""
        return self._election.term

    @property
    def master_id(self) -> int:
        """Id of the master, 0 while none is known."""
        return self._election.master

    @property
    def master_address(self) -> str | None:
        """Address of the master, None while none is known or this replica is the master."""
        master = self._election.master
        return None if master == self._election.own_id else self._addresses.get(master)

    @property
    def elected_end(self) -> int:
        """End of this replica's log when it was last elected."""
        return self._election.elected_end

    def resign(self) -> None:
        """Stop being master, because this replica cannot use its log."""
        _log.error(
            "this master cannot use its log; another replica is to be elected",
            id=self._election.own_id,
            epoch=self._election.term,
        )
        self._election.resign(now_ns())
        self.changed.set()

    @property
    def has_lease(self) -> bool:
        """Whether this replica is master now, and no other one can be."""
        return self._election.has_lease(now_ns())

    def is_master_of(self, epoch: int) -> bool:
        """Return whether this replica is the master of *epoch* and has not heard of a newer one."""
        return self.life == Life("master", epoch)

    def follows_master_of(self, epoch: int) -> bool:
        """Return whether this replica may copy from the master of *epoch*."""
        election = self._election
        return election.stance is not Stance.MASTER and election.term == epoch

    def attach(self, candidate: Candidate | None) -> None:
        """Use the store that was opened, or None while it is closed."""
        self._candidate = candidate

    def start(self) -> None:
        """Take part in elections from now on. Needs the running loop."""
        if self._task is None:
            self._task = spawn(self._run(), name="elect the master")

    async def close(self) -> None:
        """Leave; a master asks the others to elect another one at once."""
        await cancel_and_wait(self._task)
        beat = self._election.leave(now_ns()).beat
        if beat is not None:
            peers = [each for each in self._addresses if each != self._election.own_id]
            await asyncio.gather(*(self._beat(each, beat) for each in peers))
        await self.abandon()

    async def abandon(self) -> None:
        """End as in a crash."""
        await cancel_and_wait(self._task, *self._asking)
        await self._pool.close()

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers of requests of other replicas, by code."""
        return {
            RequestCode.REQUEST_VOTE: self._vote_asked,
            RequestCode.MASTER_BEAT: self._beat_heard,
        }

    # -- time ----------------------------------------------------------------------------------

    @property
    def _addresses(self) -> Mapping[int, str]:
        return self._settings.replica_addresses

    def _log_state(self) -> LogState | None:
        state = None if self._candidate is None else self._candidate.log_state()
        if state is not None:
            self._usable_ns = now_ns()
        return state

    async def _run(self) -> None:
        times = self._election.times
        while True:
            wait_ns = min(self._election.next_ns() - now_ns(), times.beat_ns)
            if wait_ns > 0:
                await asyncio.sleep(wait_ns / 1e9)
            try:
                async with self._turn:
                    self._resign_if_useless()
                    step = self._election.tick(now_ns(), self._log_state())
                    await self._save()
                self._send(step)
            except OSError as error:
                _log.error(
                    "the vote cannot be saved; this replica takes no part in elections",
                    reason=str(error),
                )

    def _resign_if_useless(self) -> None:
        if self._election.stance is not Stance.MASTER or self._log_state() is not None:
            return
        failed = self._candidate is not None and self._candidate.has_failed
        if failed or now_ns() - self._usable_ns > OPEN_WITHIN_NS:
            self.resign()

    async def _save(self) -> None:
        """Bring the ballot to disk, if it changed. Raise OSError."""
        ballot = self._election.ballot
        if ballot != self._saved:
            await in_thread(self._table.save, ballot.to_table())
            self._saved = ballot

    # -- asking --------------------------------------------------------------------------------

    def _send(self, step: Step) -> None:
        for peer in self._addresses:
            if peer == self._election.own_id:
                continue
            if step.ask is not None:
                self._start(self._ask_for_vote(peer, step.ask), name="ask for a vote")
            if step.beat is not None:
                self._start(self._beat(peer, step.beat), name="beat")

    def _start(self, coroutine: Coroutine[Any, Any, None], *, name: str) -> None:
        task = spawn(coroutine, name=name)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _ask_for_vote(self, peer: int, request: VoteRequest) -> None:
        candidate = self._candidate
        header = VoteHeader(
            broker_name=self._settings.broker_name,
            log_id="" if candidate is None else candidate.log_id or "",
            term=request.term,
            candidate=request.candidate,
            log_epoch=request.position.epoch,
            log_end=request.position.end,
            trial=request.trial,
        )
        try:
            answer = await self._ask(peer, RequestCode.REQUEST_VOTE, header)
            response = VoteResponse.from_ext(answer.ext)
            vote = VoteAnswer(response.term, granted=response.granted, complete=response.complete)
            async with self._changing():
                step = self._election.answered(peer, request, vote, now_ns(), self._log_state())
                await self._save()
        except (RemotingError, OSError) as error:
            self._warnings.warn("no vote", peer=self._addresses[peer], reason=str(error))
            return
        self._send(step)

    async def _beat(self, peer: int, beat: Beat) -> None:
        header = BeatHeader(
            broker_name=self._settings.broker_name,
            term=beat.term,
            master=beat.master,
            leaves=beat.leaves,
        )
        sent_ns = now_ns()
        try:
            answer = await self._ask(peer, RequestCode.MASTER_BEAT, header)
            response = BeatResponse.from_ext(answer.ext)
            reply = BeatAnswer(response.term, follows=response.follows)
            async with self._changing():
                self._election.beat_answered(peer, beat, sent_ns, reply, now_ns())
                await self._save()
        except (RemotingError, OSError) as error:
            self._warnings.warn(
                "a replica did not answer its master",
                peer=self._addresses[peer],
                reason=str(error),
            )

    async def _ask(self, peer: int, code: RequestCode, header: Header) -> RemotingCommand:
        request = RemotingCommand(code, ext=header.to_ext())
        timeout_s = self._election.times.lease_ns / 2e9
        answer = await self._pool.request(self._addresses[peer], request, timeout_s=timeout_s)
        if answer.code != 0:
            raise BrokerError(answer.code, answer.remark or "", request=request_name(code))
        return answer

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """Hold the turn for a change that others caused, and note it even if it cannot be saved: a
        master that was replaced must become a slave.
        """
        async with self._turn:
            before = self.life
            try:
                yield
            finally:
                self._note(before)

    def _note(self, before: Life) -> None:
        life = self.life
        if life == before:
            return
        self.changed.set()
        if life.role == "master":
            _log.info("elected as master", id=self._election.own_id, epoch=life.epoch)
        else:
            _log.warning("no longer master", id=self._election.own_id, term=self._election.term)

    # -- answering -----------------------------------------------------------------------------

    async def _vote_asked(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = VoteHeader.from_ext(request.ext)
        self._check(header.broker_name, header.candidate, header.term, channel)
        own = None if self._candidate is None else self._candidate.log_id
        if header.log_id and own and header.log_id != own:
            self._refuse(
                f"replica {header.candidate} holds log {header.log_id[:64]!r}, this one {own}: give"
                " one of them an empty data folder",
                channel,
            )
        position = Position(header.log_epoch, header.log_end)
        asked = VoteRequest(header.term, header.candidate, position, header.trial)
        async with self._changing():
            answer, _ = self._election.asked(asked, now_ns(), self._log_state())
            await self._save_to_answer()
        response = VoteResponse(term=answer.term, granted=answer.granted, complete=answer.complete)
        return request.response(ext=response.to_ext())

    async def _beat_heard(self, request: RemotingCommand, channel: RemotingChannel) -> Answer:
        header = BeatHeader.from_ext(request.ext)
        self._check(header.broker_name, header.master, header.term, channel)
        beat = Beat(header.term, header.master, header.leaves)
        async with self._changing():
            answer, _ = self._election.heard(beat, now_ns())
            await self._save_to_answer()
        response = BeatResponse(term=answer.term, follows=answer.follows)
        return request.response(ext=response.to_ext())

    async def _save_to_answer(self) -> None:
        try:
            await self._save()
        except OSError as error:
            raise BrokerError(
                ResponseCode.SYSTEM_ERROR, f"the vote cannot be saved: {error.strerror}"
            ) from error

    def _check(self, broker_name: str, sender: int, term: int, channel: RemotingChannel) -> None:
        ours = self._settings.broker_name
        if broker_name != ours:
            self._refuse(f"this is broker {ours}, not {broker_name[:200]!r}", channel)
        if sender not in self._addresses or sender == self._election.own_id:
            self._refuse(f"replica {sender} is no other one of this broker's voters", channel)
        if not 0 <= term <= self._election.term + _MOST_TERMS_AHEAD:
            raise InvalidCommand(
                f"term is {term}: expected one near {self._election.term}, the newest here"
            )

    def _refuse(self, why: str, channel: RemotingChannel) -> None:
        self._warnings.warn("request of a replica refused", peer=channel.peer, reason=why)
        raise BrokerError(ResponseCode.NO_PERMISSION, why)


def _between(least: int, most: int) -> int:
    return least + chance.number_below(most - least + 1)
