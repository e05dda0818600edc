"""Definition of a bug: a patch that replaces a method while a scenario is played."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from tests.mutants.scenarios import Scenario, everyday
from tests.mutants.world import Events
from tests.support.class_replacement import replaced_class

Bug = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug that must violate ``invariant`` in a run of ``scenario``."""

    invariant: str
    what: str
    bug: Bug
    scenario: Scenario = everyday

    def run(self) -> Events:
        """Return the history of a run with the bug."""
        with self.bug():
            return self.scenario.run()


def method_of(owner: Any, name: str, method: Callable[..., Any]) -> Bug:
    """Replace a method or function by *method*, which gets it as its first argument."""
    original = getattr(owner, name)

    def replacement(*arguments: Any, **named: Any) -> Any:
        return method(original, *arguments, **named)

    return lambda: patch.object(owner, name, replacement)


def property_of(owner: type, name: str, value: Callable[[Any, Any], Any]) -> Bug:
    """Replace a property by *value*, which gets the object and the property's value."""
    getter = getattr(owner, name).fget
    return lambda: patch.object(owner, name, property(lambda self: value(self, getter(self))))


def stand_in(broken: type) -> Bug:
    """Replace the base class of *broken* by it."""
    return lambda: replaced_class(broken, "proxy")


def all_of(*bugs: Bug) -> Bug:
    """Apply all of *bugs* at once."""

    def bug() -> AbstractContextManager[Any]:
        stack = ExitStack()
        for each in bugs:
            stack.enter_context(each())
        return stack

    return bug
