"""Requests among replicas that elect their master: own codes, unknown to RocketMQ. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.remoting.header_fields import Header, Int32


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteHeader(Header):
    """A candidate's request for a vote.

    ``log_id`` is empty while the candidate has no log; ``log_epoch`` and ``log_end`` are the
    position of its log. ``trial``: the vote is not given, only whether it would be.
    """

    broker_name: str
    log_id: str = ""
    term: int
    candidate: Int32
    log_epoch: int
    log_end: int
    trial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteResponse(Header):
    """A voter's answer. ``complete``: it lacks no data that it may have confirmed."""

    term: int
    granted: bool
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatHeader(Header):
    """A sign of life of the master of ``term``. ``leaves``: it ends."""

    broker_name: str
    term: int
    master: Int32
    leaves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatResponse(Header):
    """A replica's answer. ``follows``: it accepts the master."""

    term: int
    follows: bool
