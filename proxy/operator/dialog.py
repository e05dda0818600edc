"""What the console asks before a verb is done to a key. Its texts are templates.

``{name}`` is replaced by what ``key-acts.js`` knows of the key before (in lines) or after (in the
sentence that says what was done) under that name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """Where a key is, as the console tells keys apart."""

    QUEUE = "queue"
    PARKED = "parked"
    REDRIVEN = "redriven"


@dataclass(frozen=True, slots=True)
class Shown:
    """The verb is offered for a key at this stage that is ``paused`` or not (None: either), and
    with ``head`` only if it has a first message.
    """

    stage: Stage
    paused: bool | None = None
    head: bool = False


@dataclass(frozen=True, slots=True)
class DialogField:
    """One field of the form beside the reason, as ``dialog.js`` takes it."""

    name: str
    label: str
    type: str = "text"
    value: str = ""
    inputmode: str | None = None
    hint: str | None = None
    read: str | None = None
    """``rate``: the text has to be a number."""


@dataclass(frozen=True, slots=True)
class Dialog:
    """The dialog of one verb. ``rank``: its place among the verbs, the first is chosen."""

    rank: int
    label: str
    sentence: str
    shown: tuple[Shown, ...]
    done: str
    lines: tuple[tuple[str, str, str], ...] = ()
    """What, now, then; with ``preview`` filled from the answer to a dry run."""
    fields: tuple[DialogField, ...] = ()
    sends: tuple[str, ...] = ()
    """Fields of the key as it is shown that go with the request."""
    danger: bool = False
    preview: bool = False
