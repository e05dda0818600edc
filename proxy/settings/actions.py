"""Settings of actions, which filter, transform or deliver a topic's messages.

Field docstrings are shown in ``docs/settings.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Self

from pydantic import AfterValidator, Field, create_model, model_validator

from proxy.actions.pipeline import compile_filter, compile_transform
from proxy.settings.delivery import DeliverySettings
from proxy.settings.sinks.registry import SINKS
from proxy.settings.types import SettingsGroup


def _filter(text: str) -> str:
    compile_filter(text)
    return text


def _transform(text: str) -> str:
    compile_transform(text)
    return text


class FilterSettings(SettingsGroup):
    """A filter of messages: either tags or where."""

    where: Annotated[str, Field(min_length=1), AfterValidator(_filter)] | None = None
    """A JMESPath expression, such as "body.amount > `100`": true keeps the message, false finishes
    it. Any other result, null too, is an error and fails the delivery."""
    tags: Annotated[str, Field(min_length=1)] | None = None
    """Tags of messages to keep, such as "paid || refunded"."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.where is None) == (self.tags is None):
            raise ValueError("should have either where or tags")
        return self


class TransformSettings(SettingsGroup):
    """A replacement for the body that clients get."""

    to: Annotated[str, Field(min_length=1), AfterValidator(_transform)]
    """A JMESPath expression for the new body, such as "{id: body.id, total: body.amount}". Text
    becomes the body as it is, anything else becomes JSON; null is an error and fails the
    delivery."""


class _Action(SettingsGroup):
    """One action: a group of settings under the name of its kind."""

    filter: FilterSettings | None = None
    """Finish messages without delivering them, as with an unwanted tag."""
    transform: TransformSettings | None = None
    """Replace the body of the message."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        kinds = type(self).model_fields
        if sum(getattr(self, kind) is not None for kind in kinds) != 1:
            raise ValueError(
                f"should be one action, under the name of its kind: {', '.join(kinds)}"
            )
        return self

    @property
    def kind(self) -> str:
        """Its name: ``filter``, ``transform``."""
        return next(kind for kind in type(self).model_fields if getattr(self, kind) is not None)

    @property
    def delivery(self) -> DeliverySettings | None:
        """Its settings if it delivers, else None."""
        found = getattr(self, self.kind)
        return found if isinstance(found, DeliverySettings) else None


if TYPE_CHECKING:
    ActionSettings = _Action
else:
    ActionSettings = create_model(
        "ActionSettings",
        __base__=_Action,
        __module__=__name__,
        __doc__=_Action.__doc__,
        **{
            kind: (sink.settings | None, Field(default=None, description=sink.description))
            for kind, sink in SINKS.items()
        },
    )


def delivers_last(actions: tuple[ActionSettings, ...]) -> tuple[ActionSettings, ...]:
    """Reject actions after one that delivers."""
    for number, each in enumerate(actions[:-1], start=1):
        if each.delivery is not None:
            raise ValueError(
                f"action {number} ({each.kind}) delivers the message: it should be the last"
                " action; use another group for a second target"
            )
    return actions
