"""The file of accounts: read at the start, and again when it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog
import yaml

from broker_core.access.needs import Need
from broker_core.access.rules import AccessRules
from broker_core.errors import BrokerError, StoreError
from broker_core.rare_warnings import RareWarnings
from broker_core.remoting.codes import request_name
from broker_core.remoting.command import RemotingCommand
from broker_core.remoting.signing import ACCESS_KEY, Credentials
from broker_core.remoting_channel import Handler, RemotingChannel
from broker_core.tasks import cancel_and_wait, in_thread, spawn

_LOOK_EVERY_S = 1.0
_MAX_BYTES = 4 * 1024 * 1024
#: Raised by the parser: for no YAML, for no value of its tag or of a date, for endless nesting.
_UNREADABLE = (
    *(yaml.YAMLError, ValueError, ArithmeticError, LookupError, AttributeError, TypeError),
    RecursionError,
)


@dataclass(frozen=True, slots=True)
class CallerRights:
    """The rights of a request's account. ``check`` raises BrokerError unless it has the given ones
    by the rules in force now.
    """

    check: Callable[[Iterable[Need]], None]


class AccessFile:
    """Permits the requests that the accounts of *path* allow; all requests without a file."""

    def __init__(self, path: Path | None, *, log: str = "broker") -> None:
        """Read the file. Blocks; raises StoreError if it cannot be read or used.

        *log*: name of the log for refused requests.
        """
        self._path = path
        self._task: asyncio.Task[None] | None = None
        self._log = structlog.get_logger(log)
        self._warnings = RareWarnings(log)
        if path is None:
            return
        try:
            self._content = self._seen = _read(path)
            self._rules = _parse(self._content)
        except (OSError, ValueError) as error:
            raise StoreError(f"the accounts of {path} cannot be used: {error}") from error

    @property
    def rules(self) -> AccessRules:
        """The rules in force; only with a file."""
        return self._rules

    def own_credentials(self) -> Credentials | None:
        """Return this broker's credentials for its replicas, which have the same accounts.

        They are the first account's with administration rights; None without a file or such an
        account.
        """
        accounts = () if self._path is None else tuple(self._rules.accounts.values())
        return next((each.credentials for each in accounts if each.admin), None)

    def start(self) -> None:
        """Check the file for changes from now on."""
        if self._path is not None:
            self._task = spawn(self._look_regularly(self._path), name="read accounts again")

    async def close(self) -> None:
        """Stop checking for changes."""
        await cancel_and_wait(self._task)

    def guarded(
        self, handlers: Mapping[int, Handler], *, open_to_all: Collection[int] = ()
    ) -> dict[int, Handler]:
        """Return *handlers*, each behind the access check, except those with codes in
        *open_to_all*.
        """
        if self._path is None:
            return dict(handlers)
        return {
            code: handler if code in open_to_all else self._guard(handler)
            for code, handler in handlers.items()
        }

    def rights_of(self, request: RemotingCommand, channel: RemotingChannel) -> CallerRights | None:
        """Return the rights of the account of a *request* that passed the check; None without a
        file.
        """
        if self._path is None:
            return None
        name, peer = request.ext.get(ACCESS_KEY), channel.peer

        def check(needs: Iterable[Need]) -> None:
            with self._reporting(request, peer):
                self._rules.check_needs(name, peer, needs)

        return CallerRights(check)

    def _guard(self, handler: Handler) -> Handler:
        def checked(request: RemotingCommand, channel: RemotingChannel) -> object:
            with self._reporting(request, channel.peer):
                self._rules.check(request, channel.peer)
            return handler(request, channel)

        return checked  # type: ignore[return-value]  # what the handler returns

    @contextmanager
    def _reporting(self, request: RemotingCommand, peer: str) -> Iterator[None]:
        try:
            yield
        except BrokerError as error:
            self._warnings.warn(
                "request refused",
                peer=peer,
                request=request_name(request.code),
                reason=error.remark,
            )
            raise

    async def _look_regularly(self, path: Path) -> None:
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                if self.look(await in_thread(_read, path)):
                    self._log.info("accounts reloaded", accounts=len(self._rules.accounts))
            except (OSError, ValueError) as error:
                # Keep the accounts in force: a typing error must not lock out all clients.
                self._warnings.warn(
                    "accounts cannot be read, the previous ones stay in force",
                    peer=str(path),
                    reason=str(error),
                )

    def look(self, content: bytes) -> bool:
        """Use *content* of the file if two consecutive looks found it; return whether it is new.

        A writer may be half done, and half a list of accounts or rights is valid, too. Raises
        ValueError, and keeps the accounts in force, if it cannot be used.
        """
        is_new = content == self._seen and content != self._content
        self._seen = content
        if is_new:
            self._content = content
            self._rules = _parse(content)
        return is_new


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError(f"the file has more than {_MAX_BYTES} bytes")
    return content


def _parse(content: bytes) -> AccessRules:
    try:
        fields = yaml.safe_load(content)
    except _UNREADABLE as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f", in line {mark.line + 1}"
        raise ValueError(
            f"the file is not valid YAML{where}"
        ) from None  # the line may contain a secret
    return AccessRules.from_fields(fields)
