"""The console's confirmation dialogs for key verbs. Texts are templates.

``key-acts.js`` replaces ``{name}`` by a value of the key: before the change in ``lines``, after it
in ``done``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Stage(StrEnum):
    """Stage of a key, as the console distinguishes them."""

    QUEUE = "queue"
    PARKED = "parked"
    REDRIVEN = "redriven"


@dataclass(frozen=True, slots=True)
class Shown:
    """A condition for offering a verb: the key's stage and whether it is ``paused`` (None: any).

    With ``head`` the key must have a first message.
    """

    stage: Stage
    paused: bool | None = None
    head: bool = False


@dataclass(frozen=True, slots=True)
class DialogField:
    """A form field besides the reason, in the format of ``dialog.js``."""

    name: str
    label: str
    type: str = "text"
    value: str = ""
    inputmode: str | None = None
    hint: str | None = None
    read: str | None = None
    """``rate``: parse the text as a number."""


@dataclass(frozen=True, slots=True)
class Dialog:
    """The dialog of one verb. ``rank`` orders the verbs; the first is preselected."""

    rank: int
    label: str
    sentence: str
    shown: tuple[Shown, ...]
    done: str
    lines: tuple[tuple[str, str, str], ...] = ()
    """Item, now, after; with ``preview``, filled from the answer to a dry run."""
    fields: tuple[DialogField, ...] = ()
    sends: tuple[str, ...] = ()
    """Fields of the shown key to send with the request."""
    danger: bool = False
    preview: bool = False
