"""The table of verbs on keys and groups: one entry and one function per verb.

HTTP operations, the OpenAPI document, audit records, the command line with its examples, and the
console's dialogs are generated from this table.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from proxy.operator.dialog import Dialog, DialogField, Shown, Stage
from proxy.operator.key_models import (
    KeyBody,
    KeyRow,
    NoteBody,
    NoteView,
    PauseView,
    QueuedKeyBody,
    RedriveKeyBody,
    RetryBody,
    SkipBody,
)
from proxy.operator.request_models import Answer

if TYPE_CHECKING:  # the command line needs only the texts, without broker modules
    from proxy.operator.key_verbs import Act, KeyVerbs


class Reach(Enum):
    """The queues in which a verb runs."""

    FIRST = "first"
    """The first queue where the verb applies."""
    ONE = "one"
    """The only queue where the verb applies; refused if there are several."""
    ALL = "all"
    """Every queue where the verb applies, at all proxies."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One request.

    ``asked`` is the verb's body. ``head`` is the offset of the key's first message before the
    change; None without one, and for ALL.
    """

    asked: Any
    act: Act
    head: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OfGroup:
    """The form of a verb of reach ALL that is done to a whole group: its functions get None as the
    key. It takes a reason and nothing else.
    """

    summary: str
    """In the OpenAPI document."""
    help: str
    """Of the command line, in paragraphs."""
    examples: tuple[str, ...] = ("{why}",)
    """Of the command line: the words behind the group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyVerb:
    """One verb. Its functions take a queue and a key; for ALL, None stands for the whole group."""

    name: str
    """Name in commands, in paths, and in audit records after ``key``."""
    summary: str
    """Summary in the OpenAPI document."""
    help: str
    """Help text of the command, in paragraphs."""
    reach: Reach
    body: type[KeyBody] = KeyBody
    answer: type[Answer] = KeyRow
    may: Callable[[KeyVerbs, bytes | None], bool]
    """Return whether the verb applies there."""
    refusal: str
    """Start of the error if the verb applies in no queue; contains ``{key}``."""
    effect: Callable[[KeyVerbs, Any, Wish], Awaitable[None]]
    """Run the verb. Raises OrderlaneError if it fails."""
    recorded: str = ""
    """What the next owner has to know before the verb is confirmed; "" if *effect* waits for it."""
    after: Callable[[Any, int | None], dict[str, Any]]
    """Return the new state for the audit record, and for ALL the answer, from body and head."""
    before: Callable[[KeyVerbs, Any], dict[str, Any]] | None = None
    """For ALL: return the state before. Other verbs use the whole row of the key."""
    result: str = ""
    """For ALL: the field of the answer that the command line prints."""
    examples: tuple[str, ...] = ("customer-17 {why}",)
    """Example arguments of the command, after the group."""
    dialog: Dialog
    of_group: OfGroup | None = None
    """Set if it can be done to a whole group too."""


# ---- park, redrive, stop ------------------------------------------------------------------------


def _has_jobs(at: KeyVerbs, key: bytes | None) -> bool:
    pipeline = at.pipeline
    return (
        key is not None
        and key not in pipeline.parked
        and any(True for _ in pipeline.jobs.by_key.in_memory(key))
    )


def _is_parked(at: KeyVerbs, key: bytes | None) -> bool:
    return key in at.pipeline.parked


def _is_redriven(at: KeyVerbs, key: bytes | None) -> bool:
    twin = at.pipeline.twin
    return twin is not None and key in twin.redrives.keys


async def _park(at: KeyVerbs, key: bytes, wish: Wish) -> None:
    at.check(key, done=at.parking.park(key, by=wish.act.by, reason=wish.act.reason))


async def _redrive(at: KeyVerbs, key: bytes, wish: Wish) -> None:
    act, rate = wish.act, wish.asked.rate
    at.check(key, done=at.parking.redrive(key, by=act.by, rate=rate, audit=act.audit))


async def _stop(at: KeyVerbs, key: bytes, wish: Wish) -> None:
    at.check(key, done=at.parking.stop(key, by=wish.act.by))


# ---- skip, retry --------------------------------------------------------------------------------


def _is_unfinished(at: KeyVerbs, key: bytes | None) -> bool:
    pipeline = at.pipeline
    return key is not None and (key in pipeline.parked or key in pipeline.jobs.by_key)


async def _skip(at: KeyVerbs, key: bytes, wish: Wish) -> None:
    offset = _skipped(wish.asked, wish.head)
    await at.skip(key, -1 if offset is None else offset, wish.act)


def _skipped(asked: SkipBody, head: int | None) -> int | None:
    return head if asked.offset is None else asked.offset


async def _retry(at: KeyVerbs, key: bytes, wish: Wish) -> None:
    await at.retry(key, wish.act, anew=wish.asked.anew)


# ---- pause, resume ------------------------------------------------------------------------------


def _anywhere(_at: KeyVerbs, _key: bytes | None) -> bool:
    return True


def _is_paused(at: KeyVerbs, key: bytes | None) -> dict[str, Any]:
    return {"paused": key in at.pipeline.paused}


async def _pause(at: KeyVerbs, key: bytes | None, wish: Wish) -> None:
    await at.pause(key, wish.act)


async def _resume(at: KeyVerbs, key: bytes | None, wish: Wish) -> None:
    await at.resume(key, wish.act)


# ---- note ---------------------------------------------------------------------------------------


def _is_kept(at: KeyVerbs, key: bytes | None) -> bool:
    return key in at.pipeline.paused or key in at.pipeline.parked


async def _note(at: KeyVerbs, key: bytes, wish: Wish) -> None:
    await at.note(key, wish.asked.note)


# ---- the table ----------------------------------------------------------------------------------

PAUSE = KeyVerb(
    name="pause",
    summary="Pause a key in all queues.",
    help="""Pause a key: deliver none of its messages until it is resumed.

    Leased messages may finish. The pause applies to all queues of the topic and survives
    restarts.""",
    reach=Reach.ALL,
    answer=PauseView,
    may=_anywhere,
    refusal="key {key!r} has no queue",
    effect=_pause,
    before=_is_paused,
    after=lambda _asked, _head: {"paused": True},
    result="paused",
    dialog=Dialog(
        rank=1,
        label="Pause",
        sentence="No message of the key is delivered, in any queue, until it is resumed. A leased"
        " message may finish.",
        shown=(Shown(Stage.QUEUE, paused=False),),
        lines=(("Key", "{state}", "paused"),),
        done="Paused {everywhere}",
    ),
    of_group=OfGroup(
        summary="Pause a group in all queues.",
        help="""Pause a group: deliver no messages until it is resumed.

    Leased messages may finish. The pause applies to all queues of the group and survives restarts.
    """,
    ),
)

RESUME = KeyVerb(
    name="resume",
    summary="Resume a paused key.",
    help="Resume a paused key: deliver its messages again, in order.",
    reach=Reach.ALL,
    answer=PauseView,
    may=_anywhere,
    refusal="key {key!r} has no queue",
    effect=_resume,
    before=_is_paused,
    after=lambda _asked, _head: {"paused": False},
    result="paused",
    dialog=Dialog(
        rank=2,
        label="Resume",
        sentence="Messages of the key are delivered again, in order.",
        shown=(Shown(Stage.QUEUE, paused=True),),
        lines=(("Key", "paused", "delivering"),),
        done="Resumed {everywhere}",
    ),
    of_group=OfGroup(
        summary="Resume a paused group.",
        help="Resume a paused group; keys that were paused one by one stay paused.",
    ),
)

REDRIVE = KeyVerb(
    name="redrive",
    summary="Redrive a parked key: deliver its messages again, in order.",
    help="""Redrive a parked key: deliver its parked messages in order, then newer ones.

--all redrives every parked key of the group, or of --topic or --queue. It shows their number
and asks first.""",
    reach=Reach.FIRST,
    body=RedriveKeyBody,
    may=_is_parked,
    refusal="key {key!r} is not parked",
    effect=_redrive,
    recorded="being redriven",
    after=lambda asked, _head: {"state": "redriven", "rate": asked.rate},
    examples=(
        "customer-17 --dry-run",
        "customer-17 --rate 10 {why}",
        "--all --dry-run",
        "--all {why} --yes",
    ),
    dialog=Dialog(
        rank=5,
        label="Redrive",
        sentence="The parked messages of the key are delivered again, in order. Then the key"
        " continues in its queue.",
        shown=(Shown(Stage.PARKED),),
        fields=(
            DialogField(
                "rate",
                "Rate limit, messages/s",
                value="0",
                inputmode="decimal",
                hint="0: no limit",
                read="rate",
            ),
        ),
        preview=True,
        lines=(("Key", "{state}", "redriven"), ("Parked messages", "{copies_count}", "0")),
        done="Redriving {key}: {copies} to deliver",
    ),
)

#: In the order in which commands and paths are listed.
KEY_VERBS: tuple[KeyVerb, ...] = (
    KeyVerb(
        name="park",
        summary="Park a key: move its messages to the parked topic.",
        help="Park a key: move its messages to the parked topic, in order, until it is redriven.",
        reach=Reach.FIRST,
        may=_has_jobs,
        refusal="key {key!r} is parked, or has no unfinished message in memory,",
        effect=_park,
        recorded="parked",
        after=lambda _asked, _head: {"state": "parked"},
        dialog=Dialog(
            rank=3,
            label="Park",
            danger=True,
            sentence="All messages of the key move to the parked topic, in order, and wait there"
            " until the key is redriven. Other keys continue.",
            shown=(Shown(Stage.QUEUE, head=True),),
            lines=(
                ("Key", "{state}", "parked"),
                ("Unfinished in the queue", "{backlog}", "0, all parked"),
            ),
            done="Parked {key}: {copies}, {not_copied} left to copy",
        ),
    ),
    REDRIVE,
    KeyVerb(
        name="stop",
        summary="Stop the redrive of a key: the rest stays parked.",
        help="Stop the redrive of a key: its remaining messages stay parked.",
        reach=Reach.FIRST,
        body=QueuedKeyBody,
        may=_is_redriven,
        refusal="key {key!r} is not being redriven",
        effect=_stop,
        recorded="stopped",
        after=lambda _asked, _head: {"state": "parked"},
        dialog=Dialog(
            rank=7,
            label="Stop the redrive",
            sentence="No further message is delivered. The rest stays parked, in order.",
            shown=(Shown(Stage.REDRIVEN),),
            lines=(("Key", "redriven", "parked"),),
            done="Stopped the redrive of {key}: it is parked",
        ),
    ),
    KeyVerb(
        name="skip",
        summary="Skip the first message of a key.",
        help="""Skip the first unfinished message of a key: the group never handles it.

    A leased message cannot be skipped: pause the key and wait, or revoke the lease.""",
        reach=Reach.ONE,
        body=SkipBody,
        may=_is_unfinished,
        refusal="key {key!r} has nothing unfinished",
        effect=_skip,
        after=lambda asked, head: {"skipped": _skipped(asked, head)},
        examples=("customer-17 --offset 1042 {why}",),
        dialog=Dialog(
            rank=6,
            label="Skip the first message",
            danger=True,
            sentence="The first message is given up: no client of this group receives it again."
            " The key continues with the next one.",
            shown=(Shown(Stage.QUEUE, head=True), Shown(Stage.PARKED, head=True)),
            lines=(
                ("First message", "{head}", "the next one"),
                ("Unfinished", "{backlog}", "{backlog_less_one}"),
            ),
            sends=("offset",),
            done="Skipped {shown_offset} of {key}: {messages} left",
        ),
    ),
    KeyVerb(
        name="retry",
        summary="Retry the first message of a key now.",
        help="Retry the failed first message of a key now, without waiting for its retry interval.",
        reach=Reach.ONE,
        body=RetryBody,
        may=_is_unfinished,
        refusal="key {key!r} has nothing unfinished",
        effect=_retry,
        after=lambda asked, head: {"retried": head, "anew": asked.anew},
        dialog=Dialog(
            rank=4,
            label="Retry now",
            sentence="The first message is delivered now, before its retry is due.",
            shown=(Shown(Stage.QUEUE, head=True),),
            fields=(DialogField("anew", "Reset the delivery count", type="checkbox"),),
            lines=(("Retry of the first message", "{due}", "now"),),
            done="Retrying {key}: its first message, at {place}, is ready",
        ),
    ),
    PAUSE,
    RESUME,
    KeyVerb(
        name="note",
        summary="Attach a note to a paused or parked key.",
        help="""Attach a note to a paused or parked key, for other operators.

    The note applies to all queues of the topic, survives restarts, and is kept while the key is
    paused or parked.""",
        reach=Reach.ALL,
        body=NoteBody,
        answer=NoteView,
        may=_is_kept,
        refusal="key {key!r} is neither paused nor parked",
        effect=_note,
        before=lambda at, key: {"note": at.pipeline.note_of(key)},
        after=lambda asked, _head: {"note": asked.note},
        result="note",
        examples=("customer-17 --note 'the bank calls back' {why}",),
        dialog=Dialog(
            rank=8,
            label="Add a note",
            sentence="The note is shown with the key, at every proxy, while the key is paused or"
            " parked.",
            shown=(
                Shown(Stage.QUEUE, paused=True),
                Shown(Stage.PARKED),
                Shown(Stage.REDRIVEN),
            ),
            fields=(DialogField("note", "Note", hint="One line; empty to remove the note"),),
            lines=(("Note", "{note}", "as given above"),),
            done="Noted: {everywhere}",
        ),
    ),
)

#: Those that can be done to a whole group, with the form that they have there.
GROUP_VERBS: tuple[tuple[KeyVerb, OfGroup], ...] = tuple(
    (verb, verb.of_group) for verb in KEY_VERBS if verb.of_group is not None
)
