"""Operations of people in a running world: verbs on keys, groups, queues and proxies by the HTTP
API, and changes of the groups' settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from urllib.parse import quote

from broker_core.remoting.key_hash import plain_key
from testkit.explorer.unfinished import Unfinished
from testkit.simulation.world import ProxyNode, World

#: Actions that take something from the settings, so that its clients are refused.
REMOVALS = frozenset({"topic off", "group off"})
#: A hand-over of all queues takes as long as the longest one.
_DRAIN_WITHIN_S = 60.0
_RESUME_TRIES = 40
#: Settings that decide which key a message has.
_KEY_SETTINGS = frozenset({"order_key", "missing_key"})


class Operations:
    """Operations on *groups*, whose settings they change, in *world*. Each returns False if it had
    no effect.
    """

    def __init__(
        self,
        world: World,
        groups: list[dict[str, Any]],
        unfinished: Unfinished,
        *,
        wait: Callable[[float], Awaitable[None]],
    ) -> None:
        """Create it. *wait*: waits for a time, or until all is healed."""
        self._world = world
        self._groups = groups
        self._unfinished = unfinished
        self._wait = wait

    def acts(self) -> dict[str, Callable[..., Coroutine[Any, Any, Any]]]:
        """Return the operations, by the kind of their action."""
        return {
            "key verb": self._key_verb,
            "key verbs": self._key_verbs,
            "pause key": self._pause_key,
            "pause group": self._pause_group,
            "reset": self._reset,
            "handoff": self._handoff,
            "settings": self._settings,
            "dead letters": self._dead_letters,
            "topic off": self._topic_off,
            "group off": self._group_off,
            "group settings": self._group_settings,
            "revoke": self._revoke,
            "redrive all": self._redrive_all,
            "slow redrive": self._slow_redrive,
            "drain": self._drain,
            "group reset": self._group_reset,
        }

    async def let_all_go(self) -> bool:
        """Redrive all parked keys and resume all that is paused, and the owners that are drained;
        return True if no key was parked or paused.
        """
        free = True
        for proxy in self._alive():
            await self._ask(proxy, "/api/owners/resume")
            for group in self._groups:
                for path in self._paths(group["name"]):
                    await self._ask(proxy, f"{path}/resume")
                for rules in group["topics"]:
                    for path in self._key_paths(group["name"], rules["name"]):
                        free = await self._let_go(proxy, path) and free
        return free

    def lift_rates(self) -> None:
        """Remove all rate limits."""
        for group in self._groups:
            for rules in (group, *group["topics"]):
                rules.pop("max_rate", None)
        self._world.write_settings(self._groups)

    async def _let_go(self, proxy: ProxyNode, path: str) -> bool:
        free = True
        for what, verb in (("parked", "redrive"), ("paused", "resume")):
            status, rows = await self._world.http(proxy, f"{path}/{what}")
            if status != 200:
                free = free and status == 404
                continue
            for row in rows:
                free = False
                if verb == "resume" or row["state"] != "redriven":
                    place = {"queue": row["queue"]} if verb == "redrive" else {}
                    await self._ask(proxy, f"{path}/{verb}", key=row["key"], **place)
        return free

    # ---- requests -------------------------------------------------------------------------------

    def _alive(self) -> list[ProxyNode]:
        return [proxy for proxy in self._world.proxies if proxy.runs]

    async def _ask(self, proxy: ProxyNode, path: str, **body: Any) -> bool:
        status, _ = await self._world.http(proxy, path, {"reason": "explored", **body})
        return status == 200

    async def _ask_each(self, path: str, **body: Any) -> bool:
        """Ask the proxies one by one until one succeeds."""
        for proxy in self._world.proxies:
            if proxy.runs and await self._ask(proxy, path, **body):
                return True
        return False

    async def _ask_all(self, path: str, **body: Any) -> bool:
        """Ask all proxies; return whether one succeeded."""
        return any([await self._ask(proxy, path, **body) for proxy in self._alive()])

    def _named(self, group: str) -> dict[str, Any] | None:
        return next((each for each in self._groups if each["name"] == group), None)

    def _paths(self, group: str, topic: str | None = None) -> list[str]:
        """Return the path of *group*; those of its clients' groups if it is a broadcast group."""
        settings = self._named(group)
        names = [group] if settings is None else self._unfinished.readers(settings, topic)
        return [f"/api/groups/{quote(name, safe='')}" for name in names or [group]]

    def _key_paths(self, group: str, topic: str) -> list[str]:
        return [f"{path}/topics/{topic}/keys" for path in self._paths(group, topic)]

    # ---- keys -----------------------------------------------------------------------------------

    async def _key_verb(self, verb: str, group: str, topic: str, key: str, **more: Any) -> bool:
        paths = self._key_paths(group, topic)
        return any([await self._verb_at(verb, path, key, more) for path in paths])

    async def _verb_at(self, verb: str, path: str, key: str, more: dict[str, Any]) -> bool:
        if verb == "skip":
            if (row := await self._blocked(path, key)) is None:
                return False
            more = {"queue": row["queue"], "offset": row["offset"]}
        return await self._ask_each(f"{path}/{verb}", key=key, **more)

    async def _key_verbs(self, verbs: list[str], for_s: float, **key: str) -> bool:
        """Use the *verbs* in order, within *for_s*."""
        done = []
        for verb in verbs:
            done.append(await self._key_verb(verb, **key))
            await self._wait(for_s / len(verbs))
        return any(done)

    async def _blocked(self, path: str, key: str) -> Any:
        for proxy in self._alive():
            _, rows = await self._world.http(proxy, f"{path}/blocked")
            for row in rows if isinstance(rows, list) else ():
                if row["key"] == plain_key(key):
                    return row
        return None

    async def _pause_key(self, group: str, topic: str, key: str, for_s: float) -> bool:
        paths = self._key_paths(group, topic)
        paused = [await self._ask_each(f"{path}/pause", key=key) for path in paths]
        await self._wait(for_s)
        for path in paths:
            await self._ask_each(f"{path}/resume", key=key)
        return any(paused)

    async def _slow_redrive(
        self, group: str, topic: str, key: str, rate: int, for_s: float
    ) -> bool:
        """Redrive a key with a *rate* limit, and stop it after *for_s*."""
        paths = self._key_paths(group, topic)
        begun = [await self._ask_each(f"{path}/redrive", key=key, rate=rate) for path in paths]
        await self._wait(for_s)
        for path in paths:
            await self._ask_each(f"{path}/stop", key=key)
        return any(begun)

    async def _redrive_all(self, group: str, topic: str) -> bool:
        paths = self._key_paths(group, topic)
        return any([await self._ask_all(f"{path}/redrive-all") for path in paths])

    async def _dead_letters(self, group: str) -> bool:
        return await self._ask_each(f"/api/groups/{group}/dead-letters/redrive")

    # ---- groups, queues and proxies -------------------------------------------------------------

    async def _pause_group(self, group: str, for_s: float) -> bool:
        paths = self._paths(group)
        done = [await self._ask_all(f"{path}/pause") for path in paths]
        await self._wait(for_s)
        for path in paths:
            await self._ask_all(f"{path}/resume")
        return any(done)

    async def _reset(self, group: str, topic: str, queue: str, to: dict[str, Any]) -> bool:
        paths = [f"{path}/topics/{topic}/queues/{queue}" for path in self._paths(group, topic)]
        return any([await self._ask_each(f"{path}/reset", to=to) for path in paths])

    async def _group_reset(self, group: str, to: dict[str, Any]) -> bool:
        paths = self._paths(group)
        return any([await self._ask_all(f"{path}/offsets/reset", to=to) for path in paths])

    async def _handoff(self, group: str, topic: str, queue: str, proxy: int) -> bool:
        there = self._world.proxies[proxy]
        path = f"/api/groups/{group}/topics/{topic}/queues/{queue}"
        if not there.runs or not await self._ask(there, f"{path}/expect"):
            return False
        return await self._ask_each(f"{path}/handoff", to=there.proxy.client_id)

    async def _revoke(self, group: str, number: int) -> bool:
        """Revoke a lease: that with this *number*, counted around."""
        for proxy in self._alive():
            for path in self._paths(group):
                status, found = await self._world.http(proxy, f"{path}/leases")
                if status == 200 and (leases := found["leases"]):
                    lease = quote(leases[number % len(leases)]["lease"], safe="")
                    return await self._ask(proxy, f"{path}/leases/{lease}/revoke")
        return False

    async def _drain(self, proxy: int, for_s: float) -> bool:
        """Let a proxy hand over all queues, and own some again *for_s* later."""
        node = self._world.proxies[proxy]
        if not node.runs:
            return False
        about = {"reason": "explored"}
        status, _ = await self._world.http(
            node, "/api/owners/drain", about, timeout_s=_DRAIN_WITHIN_S
        )
        await self._wait(for_s)
        for _ in range(_RESUME_TRIES):
            if not node.runs or await self._ask(node, "/api/owners/resume"):
                break
            await asyncio.sleep(1)  # it still hands over, or its broker does not answer
        return status == 200

    # ---- settings -------------------------------------------------------------------------------

    async def _settings(self, group: str, topic: str, change: dict[str, Any]) -> bool:
        settings = self._named(group)
        for rules in () if settings is None else settings["topics"]:
            if rules["name"] == topic:
                rules.update(change)
                self._unfinished.tags_change(group, topic, rules.get("tags", "*"))
                if change.keys() & _KEY_SETTINGS:  # going back would restore those from before
                    rules["order_key_version"] = rules.get("order_key_version", 0) + 1
                self._world.write_settings(self._groups)
                return True
        return False

    async def _group_settings(self, group: str, change: dict[str, Any]) -> bool:
        if (settings := self._named(group)) is None:
            return False
        settings.update(change)
        self._world.write_settings(self._groups)
        return True

    async def _topic_off(self, group: str, topic: str, for_s: float) -> bool:
        """Remove *topic* from the settings of *group*, and add it again *for_s* later."""
        settings = self._named(group)
        if settings is None or len(settings["topics"]) < 2:
            return False
        rules = next((each for each in settings["topics"] if each["name"] == topic), None)
        return rules is not None and await self._without(settings["topics"], rules, for_s)

    async def _group_off(self, group: str, for_s: float) -> bool:
        """Remove *group* from the settings, and add it again *for_s* later."""
        settings = self._named(group)
        if settings is None or len(self._groups) < 2:
            return False
        return await self._without(self._groups, settings, for_s)

    async def _without(self, rows: list[dict[str, Any]], row: dict[str, Any], for_s: float) -> bool:
        rows.remove(row)
        self._world.write_settings(self._groups)
        await self._wait(for_s)
        rows.append(row)
        self._world.write_settings(self._groups)
        return True
