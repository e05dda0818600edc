"""Bugs in the answer to damage, losses of data, floods and expired rights, for the explorer.

Each world has the features in ``always``: hazards are rare in plans drawn by ``make explore``.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from broker_core.broker.replicas.elector import Elector
from broker_core.broker.retention_clock import RetentionClock
from broker_core.broker.topics.topics import Topics
from broker_core.client import pulling
from broker_core.connection_counts import ConnectionCounts
from broker_core.store import reader
from proxy.core.jobs.refills import RefillPass
from proxy.core.limits.quotas import Quotas
from proxy.core.records.record import Delta, Unreadable
from proxy.net.principals import Identity, Principals
from proxy.upstream.records import ownership_log
from testkit.explorer.hazards import GUEST_TOKEN
from tests.mutants.feature_bug import FeatureBug
from tests.mutants.mutant import method_of, property_of

_LONG_CHAINS = ("stuck keys", "small windows", "hot keys")
_LOST = frozenset({"D1", "G1", "C1", "C2", "L1", "W1", "LOSS", "LIVE"})


def _unverified() -> ExitStack:
    """Read records from disk, and decode them, without a look at their checksums."""
    stack, decode = ExitStack(), pulling.decode_messages
    stack.enter_context(patch.object(reader, "first_damage", lambda *_: None))

    def decoded(records: Any, *, check_bodies: bool = False, **how: Any) -> Any:
        return decode(records, check_bodies=False, **how)

    stack.enter_context(patch.object(pulling, "decode_messages", decoded))
    return stack


def _as_deleted(_original: Any, under_way: RefillPass, next_offset: int) -> Any:
    """Pass damaged messages like deleted ones."""
    return [(*each, -1) for each in under_way.was_read((), next_offset)]


def _as_if_complete(original: Any, records: Any, **how: Any) -> Any:
    """Apply each record to the state before it, even if one between them is missing."""
    read = [(at, each) for at, each in records if not isinstance(each, Unreadable)]
    known = [
        (at, replace(each, after=None) if isinstance(each, Delta) else each) for at, each in read
    ]
    return original(known, **how)


HAZARD_BUGS = (
    FeatureBug(
        "records are not verified when they are read",
        "damage of unread messages",
        frozenset({"I1", "L1", "L2", "D1", "error", "LIVE"}),
        _unverified,
        always=("damage", *_LONG_CHAINS),
    ),
    FeatureBug(
        "a damaged message that is read again counts as deleted",
        "damage, long chains",
        frozenset({"LOSS"}),
        method_of(RefillPass, "met_damage", _as_deleted),
        always=("damage", *_LONG_CHAINS),
    ),
    FeatureBug(
        "a missing ownership record is not noticed",
        "record damage, take-overs",
        frozenset({"D1", "C2", "O2", "R3", "LIVE"}),
        method_of(ownership_log, "replay", _as_if_complete),
        always=("record damage", "kills", "several proxies", "stuck keys"),
    ),
    FeatureBug(
        "topics of a restored log continue their lives",
        "restores, owners that know more",
        _LOST,
        lambda: patch.object(Topics, "continue_lives", lambda *_, **__: None),
        always=("restores",),
    ),
    FeatureBug(
        "messages grow old by the wall clock",
        "leaps of clocks, retention",
        frozenset({"LOSS", "D1"}),
        method_of(RetentionClock, "look", lambda _original, _clock, *, now_ns, wall_ms: wall_ms),
        always=("leaps", "large bodies", "stuck keys"),
    ),
    FeatureBug(
        "an elected master serves without its lease",
        "elected masters, freezes and cuts",
        frozenset({"MASTERS", *_LOST}),
        property_of(Elector, "has_lease", lambda *_: True),
        always=("elected masters",),
    ),
    FeatureBug(
        "connections of one address are not limited",
        "connection floods",
        frozenset({"LIMIT"}),
        method_of(ConnectionCounts, "is_full", lambda *_, **__: False),
        always=("connection floods",),
    ),
    FeatureBug(
        "a token is accepted after its end",
        "expiring tokens",
        frozenset({"ACCESS"}),
        method_of(Principals, "_identity", lambda _original, _, token: Identity(token.owner)),
        always=("expiring tokens",),
    ),
    FeatureBug(
        "the quota of one principal is charged to all",
        "quotas, several clients",
        frozenset({"C3", "N1", "N3", "N4", "N5", "LIVE"}),
        method_of(
            Quotas, "of_principal", lambda original, own, _, now: original(own, GUEST_TOKEN, now)
        ),
        always=("quotas",),
    ),
)
