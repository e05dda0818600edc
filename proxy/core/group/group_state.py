"""The state of a group in one word, as every page and command shows it. Pure.

The first state that applies counts, the one that needs an operator most. A group is *caught up*
only if it handled messages: parked, dead-lettered and filtered ones were not handled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from proxy.core.group.known_queue import Figures


class Kind(StrEnum):
    """How a state is shown."""

    OK = "ok"
    BUSY = "busy"
    IDLE = "idle"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True)
class GroupState:
    """A state, and the sentence that explains it."""

    word: str
    kind: Kind
    sentence: str


@dataclass(frozen=True, slots=True)
class Handled:
    """Messages since the proxy started, by what happened to them, and whether the group ever
    committed an offset above 0.
    """

    delivered: int = 0
    filtered: int = 0
    committed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPicture:
    """The basis of a state: ``figures`` of all queues that no other proxy owns, and messages
    in the queues of this proxy. ``complete``: all queues are known; ``silent``: brokers that do not
    answer for some of them, whose figures are the last known ones; ``unread``: stored, but not
    read yet; ``dead_letters``: not redriven yet, None if unknown; ``ever_owned``: False if no queue
    ever had an owner; ``broadcast``: its clients have the queues, each as a group of its own.
    """

    figures: Figures
    complete: bool = True
    silent: Sequence[str] = ()
    owned: int = 0
    ready: int = 0
    leased: int = 0
    retrying: int = 0
    blocked: int = 0
    unfinished: int = 0
    unread: int = 0
    waiting_pulls: int = 0
    bulk_readers: int = 0
    joined: bool = False
    rate_limited: bool = False
    paused: str = ""
    trouble: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)
    ever_owned: bool = True
    dead_letters: int | None = None
    handled: Handled = Handled()
    broadcast: bool = False


def state_of(group: GroupPicture) -> GroupState:
    """Return the first state that applies."""
    return next(_states(group))


def _states(group: GroupPicture) -> Iterator[GroupState]:
    if group.paused:
        yield GroupState("paused", Kind.WARN, group.paused)
    if group.refused:
        why = "; ".join(f"{queue}: {reason}" for queue, reason in group.refused.items())
        yield GroupState("queues refused", Kind.BAD, why)
    if group.trouble:
        yield GroupState("error", Kind.BAD, group.trouble)
    if group.owned:
        yield from _at_work(group)
    yield from _without_owner(group)
    if group.silent:
        brokers = ", ".join(group.silent)
        sentence = f"no message is known to wait, but figures of queues are not new: {brokers}"
        yield GroupState("unknown", Kind.WARN, sentence)
    yield from _at_rest(group)


def _at_work(group: GroupPicture) -> Iterator[GroupState]:
    """Yield the states of messages that this proxy has."""
    if group.blocked and not group.ready and not group.leased:
        why = "all unfinished messages wait behind failing, parked or paused keys"
        yield GroupState("blocked", Kind.BAD, why)
    if group.rate_limited:
        yield GroupState("rate-limited", Kind.WARN, "ready messages wait for max_rate")
    if group.retrying:
        yield GroupState("retrying", Kind.WARN, "failed messages wait for their retry")
    if group.ready and not group.leased and not group.waiting_pulls:
        yield GroupState("no pulls", Kind.WARN, "messages are ready, but no client is pulling")
    if group.unfinished or group.unread:
        yield GroupState("processing", Kind.BUSY, "messages are being handled")


def _without_owner(group: GroupPicture) -> Iterator[GroupState]:
    """Yield the states of queues that no proxy owns."""
    figures = group.figures
    if not figures.queues and figures.elsewhere:
        yield GroupState("at other proxies", Kind.IDLE, "other proxies own all queues of the group")
    if not group.complete or (figures.unowned and (figures.lag is None or figures.unknown)):
        yield GroupState("unknown", Kind.WARN, "brokers have not told what waits in all queues")
    waiting = figures.unowned and (figures.lag or figures.unfinished)
    if waiting and group.bulk_readers:
        yield GroupState("processing", Kind.BUSY, "bulk readers fetch the messages")
    if waiting:
        lag = figures.lag or figures.unfinished
        sentence = f"messages that wait without a client: {lag:,}"
        yield GroupState("no owner" if group.owned else "no clients", Kind.WARN, sentence)


def _at_rest(group: GroupPicture) -> Iterator[GroupState]:
    """Yield the states of a group without waiting messages."""
    figures, handled = group.figures, group.handled
    if figures.parked_keys:
        sentence = f"parked keys that wait for an operator: {figures.parked_keys:,}"
        yield GroupState("parked", Kind.WARN, sentence)
    if group.dead_letters:
        sentence = f"dead letters that wait for an operator: {group.dead_letters:,}"
        yield GroupState("dead-lettered", Kind.WARN, sentence)
    if handled.filtered and not handled.delivered:
        sentence = f"all messages since the proxy started were filtered: {handled.filtered:,}"
        yield GroupState("filtered", Kind.WARN, sentence)
    if group.broadcast:
        sentence = "each of its clients has the queues, as a group of its own, GROUP%CLIENT"
        yield GroupState("broadcast", Kind.IDLE, sentence)
    if not figures.queues:
        yield GroupState("no queues", Kind.IDLE, "no topic of the group exists yet")
    if not group.ever_owned:
        yield GroupState("never consumed", Kind.IDLE, "no client has pulled messages yet")
    if not group.owned:
        yield GroupState("no clients", Kind.IDLE, "no message waits, and no client is connected")
    if not (handled.delivered or handled.committed):
        yield GroupState("no messages", Kind.IDLE, "the group has handled no message yet")
    if figures.parked_keys is None or group.dead_letters is None:
        sentence = "no message waits; parked and dead-lettered ones are not known"
        yield GroupState("unknown", Kind.WARN, sentence)
    yield GroupState("caught up", Kind.OK, "all messages are handled")
