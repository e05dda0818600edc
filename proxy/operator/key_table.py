"""The verbs on keys: an entry each, and the function that does it.

HTTP operations and their document, the desk that finds the queue and writes the audit, the command
line with its examples, and the dialogs of the console are made of this table. A verb on existing
state is an entry and a function.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from proxy.operator.asked import Answer
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

if TYPE_CHECKING:  # the command line needs the words alone, and no brokers
    from proxy.operator.key_verbs import Act, KeyVerbs


class Reach(Enum):
    """The queues in which a verb is done."""

    FIRST = "first"
    """The first one where it may be."""
    ONE = "one"
    """As FIRST, but refused where it may be in several: it is about one message."""
    ALL = "all"
    """Each one where it may be, at all proxies."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One request. ``asked``: the verb's body; ``head``: the offset of the key's first message as
    it was seen, None if there was none and for ALL.
    """

    asked: Any
    act: Act
    head: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyVerb:
    """One verb. Its functions take the queue and the key; of ALL the key may be None: the group."""

    name: str
    """Of the command and of the path; behind ``key`` in the audit."""
    summary: str
    """In the OpenAPI document."""
    help: str
    """Of the command line, in paragraphs."""
    reach: Reach
    body: type[KeyBody] = KeyBody
    answer: type[Answer] = KeyRow
    may: Callable[[KeyVerbs, bytes | None], bool]
    """Eligibility: True if the verb has something to do there."""
    refusal: str
    """What holds of ``{key}`` where it may be in no queue, half a sentence."""
    effect: Callable[[KeyVerbs, Any, Wish], Awaitable[None]]
    """Raises OrderlaneError if it cannot be done after all."""
    after: Callable[[Any, int | None], dict[str, Any]]
    """The state that the audit names, from the body and the head; of ALL it is in the answer."""
    before: Callable[[KeyVerbs, Any], dict[str, Any]] | None = None
    """Of ALL: the state before; of other verbs it is the whole row of the key."""
    result: str = ""
    """Of ALL: the field of the answer that the command line shows."""
    examples: tuple[str, ...] = ("customer-17 {why}",)
    """Of the command line: what stands behind the group."""
    dialog: Dialog


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
    summary="Hand nothing of a key out, in any queue.",
    help="""Hand nothing of a key out until it is resumed; what clients have they may finish.

    It holds in all queues of the topic, at all proxies, and over restarts.""",
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
        sentence="Nothing of the key is handed out, in any queue, until it is resumed. What a"
        " client holds it may finish.",
        shown=(Shown(Stage.QUEUE, paused=False),),
        lines=(("Key", "{state}", "paused"),),
        done="Paused {everywhere}",
    ),
)

RESUME = KeyVerb(
    name="resume",
    summary="Hand a paused key out again.",
    help="Hand a paused key out again, in order.",
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
        sentence="The key is handed out again, in its order.",
        shown=(Shown(Stage.QUEUE, paused=True),),
        lines=(("Key", "paused", "handed out"),),
        done="Resumed {everywhere}",
    ),
)

REDRIVE = KeyVerb(
    name="redrive",
    summary="Hand out what is parked of a key, in order.",
    help="""Hand out what is parked of a key, in order; then it goes on as any other.

--all leaves keys alone that are redriven already; --queue and --topic say of which.""",
    reach=Reach.FIRST,
    body=RedriveKeyBody,
    may=_is_parked,
    refusal="key {key!r} is not parked",
    effect=_redrive,
    after=lambda asked, _head: {"state": "redriven", "rate": asked.rate},
    examples=("customer-17 --dry-run", "customer-17 --rate 10 {why}", "--all {why}"),
    dialog=Dialog(
        rank=5,
        label="Redrive",
        sentence="What is parked of the key is handed out again, in its order; then the key"
        " goes on in its queue.",
        shown=(Shown(Stage.PARKED),),
        fields=(
            DialogField(
                "rate",
                "Messages a second",
                value="0",
                inputmode="decimal",
                hint="0: as fast as clients take them",
                read="rate",
            ),
        ),
        preview=True,
        lines=(("Key", "{state}", "redriven"), ("Copies to hand out", "{copies_count}", "0")),
        done="{key} is redriven: {copies} to hand out",
    ),
)

#: In the order of commands and paths.
KEY_VERBS: tuple[KeyVerb, ...] = (
    KeyVerb(
        name="park",
        summary="Park a key: its messages wait in the parked topic.",
        help="Park a key: its messages wait in the parked topic, in order, until it is redriven.",
        reach=Reach.FIRST,
        may=_has_jobs,
        refusal="key {key!r} has nothing unfinished in memory, or is parked,",
        effect=_park,
        after=lambda _asked, _head: {"state": "parked"},
        dialog=Dialog(
            rank=3,
            label="Park",
            danger=True,
            sentence="All messages of the key go to the parked topic, in order, and wait there"
            " until the key is redriven. Other keys go on.",
            shown=(Shown(Stage.QUEUE, head=True),),
            lines=(
                ("Key", "{state}", "parked"),
                ("Unfinished in the queue", "{backlog}", "0, all in the parked topic"),
            ),
            done="Parked {key}: {copies}, {not_copied} to come",
        ),
    ),
    REDRIVE,
    KeyVerb(
        name="stop",
        summary="Redrive a key no longer: the rest stays parked.",
        help="Redrive a key no longer: the rest of it stays parked.",
        reach=Reach.FIRST,
        body=QueuedKeyBody,
        may=_is_redriven,
        refusal="key {key!r} is not redriven",
        effect=_stop,
        after=lambda _asked, _head: {"state": "parked"},
        dialog=Dialog(
            rank=7,
            label="Stop the redrive",
            sentence="Nothing more of it is handed out; the rest stays parked, in order.",
            shown=(Shown(Stage.REDRIVEN),),
            lines=(("Key", "redriven", "parked"),),
            done="{key} is parked",
        ),
    ),
    KeyVerb(
        name="skip",
        summary="Give up the first message of a key.",
        help="""Give up the first unfinished message of a key; the key goes on behind it.

    Not while a client has it: pause the key and wait, or revoke the lease.""",
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
            sentence="The first message is given up for this group: no client gets it any more."
            " The key goes on with the next one.",
            shown=(Shown(Stage.QUEUE, head=True), Shown(Stage.PARKED, head=True)),
            lines=(
                ("First message", "{head}", "the one behind it"),
                ("Unfinished", "{backlog}", "{backlog_less_one}"),
            ),
            sends=("offset",),
            done="Skipped {shown_offset} of {key}: {messages} left",
        ),
    ),
    KeyVerb(
        name="retry",
        summary="Hand the first message of a key out at once.",
        help="Hand the first message of a key, which failed, out without waiting for its delay.",
        reach=Reach.ONE,
        body=RetryBody,
        may=_is_unfinished,
        refusal="key {key!r} has nothing unfinished",
        effect=_retry,
        after=lambda asked, head: {"retried": head, "anew": asked.anew},
        dialog=Dialog(
            rank=4,
            label="Retry now",
            sentence="The first message is handed out at once, before its retry time.",
            shown=(Shown(Stage.QUEUE, head=True),),
            fields=(DialogField("anew", "Count hand-outs from 0 again", type="checkbox"),),
            lines=(("First message", "{due}", "handed out at once"),),
            done="{key}: its first message, at {place}, is offered",
        ),
    ),
    PAUSE,
    RESUME,
    KeyVerb(
        name="note",
        summary="Write a note on a key that is paused or parked.",
        help="""Write a note on a key that is paused or parked, for whoever looks at it next.

    It holds in all queues of the topic, at all proxies, and over restarts, as long as the key is
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
            label="Write a note",
            sentence="The note is shown with the key, at any proxy, as long as it is paused or"
            " parked.",
            shown=(
                Shown(Stage.QUEUE, paused=True),
                Shown(Stage.PARKED),
                Shown(Stage.REDRIVEN),
            ),
            fields=(DialogField("note", "Note", hint="One line; empty: no note"),),
            lines=(("Note", "{note}", "as below"),),
            done="Noted: {everywhere}",
        ),
    ),
)
