"""R3 in hand-made histories: a key is parked, and redriven rightly or wrongly."""

from __future__ import annotations

from tests.mutants.world import Events
from tests.support.parked import Parked


def rightly() -> Events:
    """In order, and unparked once nothing is left."""
    story = Parked()
    story.about("redrive", state="started")
    return story.redriven(0, 1, 2).about("unpark").events


def at_the_tail() -> Events:
    """The redrive goes on at the tail of the parked ones, and forgets those before."""
    story = Parked()
    story.about("redrive", state="started")
    return story.redriven(2).events
