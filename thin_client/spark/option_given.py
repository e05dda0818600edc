"""The options of one query, before their values are parsed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from thin_client.spark.kafka_names import own_names
from thin_client.spark.option_table import check_names
from thin_client.spark.option_values import OptionError, text

T = TypeVar("T")


class Given:
    """The options of one query, with checked names.

    Options are found by orderlane's names; errors use the names by which they were set.
    """

    def __init__(self, options: Mapping[str, str], where: str) -> None:
        own = own_names(options)
        check_names(own.texts, where=where, called=own.called)
        self.kafka_names = own.kafka
        #: Returns the name by which an option is set.
        self.called = own.called
        self._texts = {name.lower(): value for name, value in own.texts.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._texts

    def take(self, name: str, read: Callable[[str, str], T]) -> T | None:
        """Return the value, parsed by *read*; None if the option is not set."""
        found = self._texts.get(name.lower())
        return None if found is None else read(self.called(name), found)

    def get(self, name: str, read: Callable[[str, str], T], default: T) -> T:
        """Return the value, parsed by *read*, or *default*."""
        found = self.take(name, read)
        return default if found is None else found

    def need(self, name: str, what: str) -> str:
        """Return the text of a required option; *what* describes it in the error."""
        found = self.take(name, text)
        if found is None:
            raise OptionError(f"{name} is missing: set option({name!r}, ...) to {what}")
        return found

    def one_of(self, *names: str) -> str | None:
        """Return which of these mutually exclusive options is set."""
        found = [name for name in names if name in self]
        if len(found) > 1:
            raise OptionError(f"{' and '.join(found)} exclude each other: set only one of them")
        return found[0] if found else None
