"""What a bug is: a patch that takes the place of a method while a scenario is played."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from tests.mutants.scenarios import Scenario, everyday
from tests.mutants.world import Events
from tests.support import stand_ins

Bug = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Mutant:
    """``bug`` must turn ``invariant`` red in a run of ``scenario``."""

    invariant: str
    what: str
    bug: Bug
    scenario: Scenario = everyday

    def run(self) -> Events:
        """The history of a run with the bug."""
        with self.bug():
            return self.scenario.run()


def method_of(owner: Any, name: str, method: Callable[..., Any]) -> Bug:
    """*method* takes the place of a method or function, which it gets as its first argument."""
    original = getattr(owner, name)

    def replacement(*arguments: Any, **named: Any) -> Any:
        return method(original, *arguments, **named)

    return lambda: patch.object(owner, name, replacement)


def property_of(owner: type, name: str, value: Callable[[Any, Any], Any]) -> Bug:
    """*value* takes the place of a property; it gets the object and what the property says."""
    getter = getattr(owner, name).fget
    return lambda: patch.object(owner, name, property(lambda self: value(self, getter(self))))


def stand_in(broken: type) -> Bug:
    """*broken* takes the place of the class that it extends."""
    return lambda: stand_ins.stand_in(broken, "proxy")


def all_of(*bugs: Bug) -> Bug:
    """All of *bugs* at once."""

    def bug() -> AbstractContextManager[Any]:
        stack = ExitStack()
        for each in bugs:
            stack.enter_context(each())
        return stack

    return bug
