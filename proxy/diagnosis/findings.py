"""Findings of a diagnosis: ranked causes, and the formatting of their sentences. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from broker_core.printable import printable


class Cause(StrEnum):
    """Why a group is stuck or soon will be. An earlier cause may explain a later one."""

    BROKER_AWAY = "broker_away"
    PROXY_AWAY = "proxy_away"
    PROXY_BUSY = "proxy_busy"
    TOPIC_MISSING = "topic_missing"
    NOT_READABLE = "not_readable"
    READ_FAILS = "read_fails"
    CLOCK_JUMP = "clock_jump"
    OLDER_SETTINGS = "older_settings"
    PAUSED = "paused"
    NO_OWNER = "no_owner"
    REFUSED = "refused"
    NO_PULLER = "no_puller"
    RATE_LIMITED = "rate_limited"
    TARGET_DOWN = "target_down"
    MEMORY_FULL = "memory_full"
    MESSAGE_DAMAGED = "message_damaged"
    KEY_BLOCKED = "key_blocked"
    CLIENT_HANGS = "client_hangs"
    LEASES_EXPIRED = "leases_expired"
    NO_ORDER_KEY = "no_order_key"
    FILTERED = "filtered"
    LOCK_IN_DOUBT = "lock_in_doubt"
    KEY_CHANGE = "key_change"
    NOT_COPIED = "not_copied"
    NEAR_RETENTION = "near_retention"
    RECORDS_DAMAGED = "records_damaged"
    TOPIC_RECREATED = "topic_recreated"
    HOT_KEY = "hot_key"
    SLOW_HANDLER = "slow_handler"
    PARKED = "parked"
    DEAD_LETTERS = "dead_letters"


#: Words of a verb with arguments, such as ``key park``.
_VERB_WORDS = 2

_RANK = {cause: rank for rank, cause in enumerate(Cause)}


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem.

    ``where`` is a queue, key, proxy or broker; ``messages`` the number of waiting messages, 0 if
    unknown; ``since_ms`` the start in milliseconds since 1970, None if unknown; ``cure`` the
    advice. ``command`` carries it out; ``look`` shows more, and changes nothing.
    """

    cause: Cause
    where: str
    what: str
    cure: str
    command: str = ""
    since_ms: int | None = None
    messages: int = 0
    look: str = ""

    @property
    def sentence(self) -> str:
        """The finding as text: problem, cure and command."""
        typed = f": {self.command}" if self.command else ""
        shown = f" (see {self.look})" if self.look else ""
        return f"{self.what}. {self.cure}{typed}{shown}"

    def row(self) -> dict[str, Any]:
        """Return the finding as a JSON object."""
        return {**asdict(self), "cause": self.cause.value, "sentence": self.sentence}


def ranked(findings: Sequence[Finding]) -> list[Finding]:
    """Return findings by cause; within one cause, those with most waiting messages first."""
    return sorted(set(findings), key=lambda each: (*_place(each), each.where, each.what, each.cure))


def _place(finding: Finding) -> tuple[int, int]:
    return _RANK[finding.cause], -finding.messages


def number(count: int, noun: str) -> str:
    """Format a count: ``1 message``, ``20 messages``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def waiting(count: int, of: str = "message", about: str = "") -> str:
    """Return that messages wait: ``1 message of orders waits``; *about* is ``of orders``."""
    return f"{number(count, of)}{about and ' '}{about} {'waits' if count == 1 else 'wait'}"


def span(seconds: float) -> str:
    """Format a duration."""
    seconds = max(0.0, seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def some(names: Sequence[str], most: int = 3) -> str:
    """List the first *most* of *names*, and count the rest."""
    more = len(names) - most
    shown = ", ".join(names[:most])
    return f"{shown} and {more:,} more" if more > 0 else shown


def typed(*words: str, yes: bool = False, every: bool = False, **options: str | None) -> str:
    """Return an orderlane command quoted for a shell, always on one line.

    Args:
        words: The verb and its arguments. If one of these begins with a dash, options go before
            them: it would be taken for an option itself.
        yes: Add ``--yes``: the verb does not ask.
        every: Add ``--all``.
        options: Values of options by name; None: leave the option out.
    """
    named = [
        word
        for name, value in options.items()
        if value is not None
        for word in (f"--{name.replace('_', '-')}", _quoted(value))
    ]
    named = ["--all"] * every + named + ["--yes"] * yes
    plain = [*map(_quoted, words)]
    dashed = next((place for place, word in enumerate(words) if word.startswith("-")), None)
    if dashed is None:
        return " ".join(("orderlane", *plain, *named))
    verb = min(dashed, _VERB_WORDS)
    return " ".join(("orderlane", *plain[:verb], *named, "--", *plain[verb:]))


def _quoted(word: str) -> str:
    if not word.isprintable():
        # Quotes are escaped by number, so that simple parsers find the end of the word, too.
        return "$'" + printable(word.replace("\\", "\\\\").replace("'", "\\x27")) + "'"
    plain = word and all(each.isalnum() or each in "-_./:,@%+=" for each in word)
    return word if plain else "'" + word.replace("'", "'\"'\"'") + "'"
