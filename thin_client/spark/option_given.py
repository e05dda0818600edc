"""The options of one query, before their values are read. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from thin_client.spark.option_table import check_names
from thin_client.spark.option_values import OptionError, text

T = TypeVar("T")


class Given:
    """The options of one query, whose names are known and in their place."""

    def __init__(self, options: Mapping[str, str], where: str) -> None:
        check_names(options, where=where)
        self._texts = {name.lower(): value for name, value in options.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._texts

    def take(self, name: str, read: Callable[[str, str], T]) -> T | None:
        """The value as *read* understands it; None if it was left out."""
        found = self._texts.get(name.lower())
        return None if found is None else read(name, found)

    def get(self, name: str, read: Callable[[str, str], T], default: T) -> T:
        """The same with a default."""
        found = self.take(name, read)
        return default if found is None else found

    def need(self, name: str, what: str) -> str:
        """A text that has to be there."""
        found = self.take(name, text)
        if found is None:
            raise OptionError(f"{name} is missing: expected {what}, as option({name!r}, ...)")
        return found

    def one_of(self, *names: str) -> str | None:
        """Which of the options, that exclude each other, was given."""
        found = [name for name in names if name in self]
        if len(found) > 1:
            raise OptionError(
                f"{' and '.join(found)} contradict each other: expected one of them only"
            )
        return found[0] if found else None
