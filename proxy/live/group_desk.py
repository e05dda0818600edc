"""Operators' requests for group settings: show, store, delete."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from proxy.core.access.audit_record import Change
from proxy.core.keys.group_names import check_group
from proxy.errors import Refused, SettingsError
from proxy.lane.lanes import Lanes
from proxy.live.group_store import check_version
from proxy.live.live_groups import LiveGroups, Source
from proxy.live.store_watch import StoreWatch
from proxy.live.stored_group import group_of, stored_form
from proxy.settings.groups import GroupSettings
from proxy.upstream.audit import Audit


@dataclass(frozen=True, slots=True)
class Wish:
    """Author, reason and expected version (0: does not exist; None: any) of a change."""

    by: str
    reason: str
    expect: int | None = None
    dry_run: bool = False


class GroupDesk:
    """Group settings as operators read and change them. *store* is None if the settings name
    none.
    """

    def __init__(
        self, lanes: Lanes, live: LiveGroups, audit: Audit, store: StoreWatch | None
    ) -> None:
        self._lanes = lanes
        self._live = live
        self._audit = audit
        self._watch = store

    def describe(self, group: str) -> dict[str, Any]:
        """Return the source of *group*, its settings and, if it is stored, their version.

        If the newest settings of a stored group are refused, earlier ones are shown.

        Raises UnknownName, also for a removed group whose queues are being handed over.
        """
        source = self._live.source_of(group)
        settings = self._live.groups.get(group)
        refused = self._refused().get(group)
        unsigned = self._unsigned(group)
        deleted = self._watch is not None and group in self._watch.store.old_keys
        if settings is None and refused is None and unsigned is None and not deleted:
            settings = self._lanes.named(group).settings
        shown = None if settings is None else stored_form(settings)
        if source is not Source.FILE and refused is None:
            # A version may be known for a moment before it is served.
            shown = self._stored(group) or shown
        return {
            "group": group,
            "source": "clients" if source is None else source.value,
            "version": self._version(group),
            "settings": shown,
            "refused": refused,
            "unsigned": unsigned,
        }

    async def put(self, group: str, settings: Mapping[str, Any], wish: Wish) -> dict[str, Any]:
        """Store *settings* for *group*.

        Raises SettingsError for invalid settings, and Refused if they cannot be stored here or the
        version is not the expected one.
        """
        try:
            check_group(group)
        except ValueError as error:
            raise SettingsError(str(error)) from None
        watch = self._stored_here(group)
        made = group_of(group, settings)
        others = [each for each in watch.served if each.name != group]
        try:
            self._live.check(Source.STORE, [*others, made])
        except SettingsError as error:
            raise Refused("; ".join(str(error).splitlines())) from None
        return await self._change(watch, group, made, wish)

    async def delete(self, group: str, wish: Wish) -> dict[str, Any]:
        """Remove *group* from the store. Raises like ``put``, and UnknownName."""
        watch = self._stored_here(group)
        await watch.store.refresh()
        store = watch.store
        pending = group in store.unreadable or group in store.old_keys
        if not self._version(group) and not pending:
            self._lanes.named(group)
            raise Refused(f"group {group} is not in the store: it comes from clients")
        return await self._change(watch, group, None, wish)

    async def _change(
        self, watch: StoreWatch, group: str, made: GroupSettings | None, wish: Wish
    ) -> dict[str, Any]:
        store = watch.store
        await store.refresh()
        held = store.known.get(group)
        check_version(group, held, expect=wish.expect)
        version = self._version(group)
        before = None if held is None else held.settings
        after = None if made is None else stored_form(made)
        # The same settings are written again if the value at a nameserver does not count, or is
        # signed with another key than the first.
        differs = before != after or group in store.unreadable or not store.is_current(group)
        told = {
            "group": group,
            "version": version,
            "before": before,
            "after": after,
            "changed": differs and not wish.dry_run,
        }
        if wish.dry_run or not differs:
            return told
        change = Change(
            actor=wish.by,
            verb=_verb(before, after),
            group=group,
            reason=wish.reason,
            before=before,
            after=after,
        )
        async with self._audit.change(change):
            # The audit entry's old value is the value that is replaced: while the entry was stored,
            # another change may have been made.
            value = await store.write(group, made, expect=version, by=wish.by)
        watch.serve()
        return {**told, "version": value.version}

    def _stored_here(self, group: str) -> StoreWatch:
        if self._watch is None:
            raise Refused(
                "this proxy has no store for groups: set group_store: nameserver, or change the"
                " settings file"
            )
        if self._live.source_of(group) is Source.FILE:
            raise Refused(f"group {group} comes from the proxy's settings file: change it there")
        return self._watch

    def _version(self, group: str) -> int:
        held = None if self._watch is None else self._watch.store.known.get(group)
        return 0 if held is None or held.settings is None else held.version

    def _stored(self, group: str) -> dict[str, Any] | None:
        held = None if self._watch is None else self._watch.store.known.get(group)
        return None if held is None else held.settings

    def _unsigned(self, group: str) -> dict[str, Any] | None:
        found = None if self._watch is None else self._watch.store.unsigned.get(group)
        return None if found is None else found.settings

    def _refused(self) -> Mapping[str, str]:
        return {} if self._watch is None else self._watch.state.refused


def _verb(before: dict[str, Any] | None, after: dict[str, Any] | None) -> str:
    if before is not None and before == after:
        return "groups sign"
    if after is None:
        return "groups delete"
    return "groups update" if before else "groups create"
