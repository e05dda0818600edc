"""Applies the actions of a topic, in order, to one message. Pure.

An error never counts as success or as a filter's false: the message has failed, which counts as a
failed delivery.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import orjson

from proxy.actions.document import MAX_BODY_BYTES, NAMES, Subject
from proxy.actions.expression import (
    BadExpression,
    EvaluationFailed,
    Expression,
    compile_expression,
    gives_no_verdict,
)


@dataclass(frozen=True, slots=True)
class Passed:
    """The message is delivered, with *body* replacing its own (None: unchanged)."""

    body: bytes | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """The message is filtered by the action *by*, such as ``action 1``."""

    by: str


@dataclass(frozen=True, slots=True)
class Failed:
    """An action failed; *reason* names it and says why."""

    reason: str


Outcome = Passed | Dropped | Failed
#: Returns False to filter the message. Raises EvaluationFailed.
Step = Callable[[Subject], bool]

_AS_IT_IS = Passed()


@dataclass(frozen=True, slots=True)
class Action:
    """One action. ``kind`` is its name in the settings, ``number`` counts from 1."""

    number: int
    kind: str
    step: Step

    @property
    def name(self) -> str:
        """Name in histories."""
        return f"action {self.number}"


@dataclass(frozen=True, slots=True)
class Actions:
    """The filters and transforms of one topic of one group; false if there are none."""

    each: tuple[Action, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.each)

    @property
    def filters(self) -> list[str]:
        """Names of the actions that may filter messages."""
        return [action.name for action in self.each if action.kind == "filter"]

    def run(self, subject: Subject) -> Outcome:
        """Apply all actions to *subject*."""
        for action in self.each:
            try:
                wanted = action.step(subject)
            except EvaluationFailed as error:
                return Failed(f"{action.name} ({action.kind}) {error}")
            if not wanted:
                return Dropped(action.name)
        return Passed(subject.body) if subject.transformed else _AS_IT_IS


def compile_filter(text: str) -> Expression:
    """Compile the expression of a filter. Raises BadExpression with one sentence."""
    where = compile_expression(text, known=NAMES)
    if (what := gives_no_verdict(where)) is not None:
        raise BadExpression(f"gives {what}, but a filter needs true or false")
    return where


def compile_transform(text: str) -> Expression:
    """Compile the expression of a transform. Raises BadExpression with one sentence."""
    return compile_expression(text, known=NAMES)


def tags_filter(tags: frozenset[str] | None) -> Step:
    """Return a filter for messages with one of *tags*; None: all."""
    return lambda subject: tags is None or subject.message.tag in tags


def where_filter(where: Expression) -> Step:
    """Return a filter for messages for which *where* is true."""

    def step(subject: Subject) -> bool:
        verdict = where.of(subject.document(where.names))
        if verdict is not True and verdict is not False:
            raise EvaluationFailed(f"gave {_kind(verdict)}, neither true nor false")
        return verdict is True

    return step


def transform(to: Expression) -> Step:
    """Return a transform that replaces the body by the result of *to*: text unchanged, anything
    else as JSON.
    """

    def step(subject: Subject) -> bool:
        made = to.of(subject.document(to.names))
        if made is None:
            raise EvaluationFailed("gave null, which is not a body")
        try:
            body = made.encode() if isinstance(made, str) else orjson.dumps(made)
        except (orjson.JSONEncodeError, UnicodeEncodeError) as error:
            raise EvaluationFailed(
                f"gave a result that cannot be written as JSON: {error}"
            ) from None
        if len(body) > MAX_BODY_BYTES:
            raise EvaluationFailed(f"made {len(body)} bytes, more than {MAX_BODY_BYTES}")
        subject.transform(body)
        return True

    return step


def _kind(value: object) -> str:
    if value is None:
        return "null"
    kinds = {str: "text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return kinds.get(type(value), type(value).__name__)
