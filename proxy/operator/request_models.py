"""Base models of operator requests and answers, and the fields common to all changes.

A field's description completes the error "NAME should be …" for an invalid value. Pure.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from broker_core.remoting.key_hash import plain_key


class RequestModel(BaseModel):
    """Base of requests. Values are not converted, and unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def named_topics(self) -> tuple[str, ...]:
        """Return the topics that the request names besides those in its path."""
        topic = getattr(self, "topic", None)
        return () if topic is None else (topic,)


Reason = Annotated[
    str,
    Field(
        description="a one-line reason for the audit topic",
        min_length=1,
        max_length=1000,
        pattern=r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f-\xa0][^\x00-\x1f\x7f]*$",
    ),
]
#: Strips blanks around a key. Applied after the field's limits.
PLAIN_KEY = AfterValidator(lambda value: None if value is None else plain_key(value))
Actor = Annotated[
    str | None,
    Field(description="the name of the caller (default: its address)", max_length=200),
]


class ChangeBody(RequestModel):
    """Base of changes: the caller and the reason."""

    reason: Reason
    by: Actor = None


class Answer(BaseModel):
    """Base of answers."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Streamed:
    """The pieces of an export. Errors of brokers that do not answer come into ``unanswered``, by
    name, before the first piece or later; then the last piece is followed by Unavailable.
    """

    pieces: AsyncIterator[bytes]
    unanswered: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Listed:
    """The rows of a list, without those of brokers that did not answer: ``unanswered``, errors by
    name.
    """

    rows: Sequence[dict[str, Any]]
    unanswered: Mapping[str, str] = field(default_factory=dict)
