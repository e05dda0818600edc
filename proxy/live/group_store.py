"""Group settings in the nameservers, shared by all proxies of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from broker_core.client.key_values import KeyValues
from broker_core.clock import wall_ms
from broker_core.errors import BrokerError, RemotingError
from broker_core.rare_warnings import RareWarnings
from proxy.errors import Refused, Unavailable
from proxy.live.store_keys import StoreKeys
from proxy.live.store_reading import MAX_FIRST_VERSION, StoreReading, read_values, shown_name
from proxy.live.stored_group import NAMESPACE, StoredGroup, stale, stored_form
from proxy.settings.groups import GroupSettings

_log = structlog.get_logger("config")


class GroupStore:
    """Current and last known values of the nameservers, which may lose theirs and which any client
    may write to: only values signed with one of *keys* count.
    """

    def __init__(self, values: KeyValues, keys: StoreKeys) -> None:
        self._values = values
        self._keys = keys
        self._turn = asyncio.Lock()  # no put between a read and the put that depends on it
        self._reading = StoreReading()
        self._warnings = RareWarnings("config")
        #: Whether a nameserver has answered since the start.
        self.was_read = False
        #: By unreachable nameserver: the reason.
        self.unreachable: dict[str, str] = {}
        #: Values refused so far, each once.
        self.refusals = 0

    @property
    def known(self) -> Mapping[str, StoredGroup]:
        """The valid values by group, deletions included."""
        return self._reading.known

    @property
    def unreadable(self) -> Mapping[str, str]:
        """By group: why a value at a nameserver does not count."""
        return self._reading.refused

    @property
    def more_unreadable(self) -> int:
        """Number of further such values."""
        return self._reading.more_refused

    @property
    def unsigned(self) -> Mapping[str, StoredGroup]:
        """Settings without a signature, which count once they are signed."""
        return self._reading.unsigned

    @property
    def old_keys(self) -> list[str]:
        """Groups whose value is signed with another key than the first, sorted."""
        return sorted(
            name for name, value in self.known.items() if not self._keys.is_current(value)
        )

    def is_current(self, name: str) -> bool:
        """Return whether the first key signed the value of *name*."""
        held = self.known.get(name)
        return held is not None and self._keys.is_current(held)

    async def refresh(self) -> None:
        """Read all nameservers and restore missing values. Never raises."""
        async with self._turn:
            await self._refresh()

    async def _refresh(self) -> None:
        tables = await self._read()
        self.was_read = self.was_read or bool(tables)
        before = self._reading.refused
        self._reading = read_values(tables.values(), self.known, self._keys)
        self._report(before)
        await asyncio.gather(*(self._mend(name, table) for name, table in tables.items()))

    async def write(
        self, name: str, group: GroupSettings | None, *, expect: int | None, by: str
    ) -> StoredGroup:
        """Sign and store *group* (None: its deletion) under *name* at all reachable nameservers.

        *expect* is the expected current version: 0 if it does not exist, None for any. Raises
        Refused if the version differs or another writer was faster, and Unavailable if no
        nameserver answers; its text says whether the change may still follow.
        """
        async with self._turn:
            await self._refresh()
            self._check_reachable()
            check_version(name, self.known.get(name), expect=expect)
            settings = None if group is None else stored_form(group)
            unsigned = StoredGroup(self._next_version(name), settings, wall_ms(), by)
            value = self._keys.sign(name, unsigned)
            stored = await asyncio.gather(
                *(self._put(each, name, value.encode()) for each in self._values.nameservers)
            )
            if not any(each is None for each in stored):
                await self._check_stored(name, value, [each for each in stored if each])
                return value
            self._reading.known[name] = value
            await self._refresh()
            if self.known.get(name) != value:
                raise Refused(f"group {name} was changed concurrently: read it again, then retry")
            return value

    def _next_version(self, name: str) -> int:
        held, unsigned = self.known.get(name), self.unsigned.get(name)
        version = 0 if held is None else held.version
        # Proxies of a version without signatures follow the highest version.
        if held is None and unsigned is not None and unsigned.version < MAX_FIRST_VERSION:
            version = unsigned.version
        return version + 1

    def _check_reachable(self) -> None:
        if len(self.unreachable) == len(self._values.nameservers):
            reasons = "; ".join(self.unreachable.values())
            raise Unavailable(f"no nameserver answers, so nothing was changed: {reasons}")

    async def _check_stored(
        self, name: str, value: StoredGroup, errors: Sequence[RemotingError]
    ) -> None:
        """Raise Unavailable unless a nameserver has *value*, although putting it failed everywhere
        with *errors*: an answer may have been lost.
        """
        await self._refresh()
        if self.known.get(name) == value:
            return
        if all(error.unsent or isinstance(error, BrokerError) for error in errors):
            self._check_reachable()
            raise Unavailable(f"no nameserver accepted group {name}: nothing was changed")
        raise Unavailable(
            f"no nameserver confirmed the change of group {name}, which may still follow: read it"
            f" again before you retry; {'; '.join(map(str, errors))}"
        )

    async def _read(self) -> dict[str, dict[str, str]]:
        """Return the values of each nameserver that answers."""
        nameservers = self._values.nameservers
        answers = await asyncio.gather(
            *(self._values.all_of(each, NAMESPACE) for each in nameservers), return_exceptions=True
        )
        tables = {}
        unreachable = {}
        for nameserver, answer in zip(nameservers, answers, strict=True):
            if isinstance(answer, RemotingError):
                unreachable[nameserver] = f"{nameserver}: {answer}"
            elif isinstance(answer, BaseException):
                raise answer
            else:
                tables[nameserver] = answer
        self.unreachable = unreachable
        return tables

    def _report(self, before: Mapping[str, str]) -> None:
        """Count and log values that are refused for the first time; a stranger may cause many."""
        for name, reason in self._reading.refused.items():
            if before.get(name) != reason:
                self.refusals += 1
                self._warnings.warn(
                    "value of the store refused", peer="", group=shown_name(name), reason=reason
                )

    async def _mend(self, nameserver: str, table: Mapping[str, str]) -> None:
        for name, value in stale(table, self.known):
            if await self._put(nameserver, name, value) is None:
                _log.info(
                    "restored a missing or invalid group at a nameserver",
                    nameserver=nameserver,
                    group=shown_name(name),
                )

    async def _put(self, nameserver: str, name: str, value: str) -> RemotingError | None:
        """Store *value* at *nameserver*; return why that failed."""
        try:
            await self._values.put(nameserver, NAMESPACE, name, value)
        except RemotingError as error:
            self.unreachable[nameserver] = f"{nameserver}: {error}"
            return error
        return None


def check_version(name: str, held: StoredGroup | None, *, expect: int | None) -> None:
    """Raise Refused unless *held* has the version *expect*."""
    version = 0 if held is None or held.settings is None else held.version
    if expect is None or expect == version:
        return
    if not version:
        raise Refused(f"there is no group {name} in the store, and version {expect} is expected")
    raise Refused(
        f"group {name} has version {version}, and"
        f" {f'version {expect}' if expect else 'none'} is expected: read it again, then retry"
    )
