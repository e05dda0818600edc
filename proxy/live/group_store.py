"""Group settings in the nameservers, shared by all proxies of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from broker_core.client.key_values import KeyValues
from broker_core.clock import wall_ms
from broker_core.errors import RemotingError
from proxy.errors import Refused, Unavailable
from proxy.live.stored_group import NAMESPACE, StoredGroup, newest, stale, stored_form
from proxy.settings.groups import GroupSettings

_log = structlog.get_logger("config")


class GroupStore:
    """Current and last known values of the nameservers, which may lose theirs."""

    def __init__(self, values: KeyValues) -> None:
        self._values = values
        self._turn = asyncio.Lock()  # no put between a read and the put that depends on it
        #: By group, deletions included.
        self.known: dict[str, StoredGroup] = {}
        #: By group: values that cannot be decoded.
        self.unreadable: dict[str, str] = {}
        #: By unreachable nameserver: the reason.
        self.unreachable: dict[str, str] = {}

    async def refresh(self) -> None:
        """Read all nameservers and restore missing values. Never raises."""
        async with self._turn:
            await self._refresh()

    async def _refresh(self) -> None:
        tables = await self._read()
        self.known, self.unreadable = newest(tables.values(), self.known)
        await asyncio.gather(*(self._mend(name, table) for name, table in tables.items()))

    async def write(
        self, name: str, group: GroupSettings | None, *, expect: int | None, by: str
    ) -> StoredGroup:
        """Store *group* (None: its deletion) under *name* at all reachable nameservers.

        *expect* is the expected current version: 0 if it does not exist, None for any. Raises
        Refused if the version differs or another writer was faster, and Unavailable if no
        nameserver answers.
        """
        async with self._turn:
            await self._refresh()
            self._check_reachable()
            held = self.known.get(name)
            check_version(name, held, expect=expect)
            version = 1 if held is None else held.version + 1
            settings = None if group is None else stored_form(group)
            value = StoredGroup(version, settings, wall_ms(), by)
            stored = await asyncio.gather(
                *(self._put(each, name, value.encode()) for each in self._values.nameservers)
            )
            if not any(stored):
                self._check_reachable()
                raise Unavailable(f"no nameserver accepted group {name}: nothing was changed")
            self.known[name] = value
            await self._refresh()
            if self.known.get(name) != value:
                raise Refused(f"group {name} was changed concurrently: read it again, then retry")
            return value

    def _check_reachable(self) -> None:
        if len(self.unreachable) == len(self._values.nameservers):
            reasons = "; ".join(self.unreachable.values())
            raise Unavailable(f"no nameserver answers, so nothing was changed: {reasons}")

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

    async def _mend(self, nameserver: str, table: Mapping[str, str]) -> None:
        for name, value in stale(table, self.known):
            if await self._put(nameserver, name, value):
                _log.info(
                    "restored a missing group at a nameserver", nameserver=nameserver, group=name
                )

    async def _put(self, nameserver: str, name: str, value: str) -> bool:
        try:
            await self._values.put(nameserver, NAMESPACE, name, value)
        except RemotingError as error:
            self.unreachable[nameserver] = f"{nameserver}: {error}"
            return False
        return True


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
