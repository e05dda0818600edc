"""What operators ask for and are answered, as models: their bases, and the fields of every change.

A field's description completes the sentence "NAME should be …", by which a wrong value is refused.
Pure.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from broker_core.remoting.key_hash import plain_key


class Asked(BaseModel):
    """Base of what is asked for: nothing is guessed, and what is not known is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Reason = Annotated[
    str,
    Field(
        description="one line that says why, for the audit topic",
        min_length=1,
        max_length=1000,
        pattern=r"^[^\x00-\x1f\x7f]*[^\x00-\x20\x7f-\xa0][^\x00-\x1f\x7f]*$",
    ),
]
#: Marks a field that holds a key: blanks around it do not count. Behind the limits of the field.
PLAIN_KEY = AfterValidator(lambda value: None if value is None else plain_key(value))
Actor = Annotated[
    str | None,
    Field(description="who asks for it; without it the address that asked", max_length=200),
]


class ChangeBody(Asked):
    """Base of what changes something: who, and why."""

    reason: Reason
    by: Actor = None


class Answer(BaseModel):
    """Base of what is answered."""

    model_config = ConfigDict(extra="forbid")
