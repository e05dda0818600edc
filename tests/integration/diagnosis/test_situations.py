"""``orderlane doctor`` and ``doctor GROUP`` name the cause, and their commands cure it."""

from __future__ import annotations

import asyncio
import getpass
import re
import shlex
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from broker_core.names import Group
from proxy.cli.connect import ask_proxy
from proxy.diagnosis.findings import Cause
from testkit.eventually import eventually
from testkit.gateway import GROUP, TOPIC
from tests.integration.diagnosis.doctor import WHY, failed, until_unfinished
from tests.integration.diagnosis.situations import KEEPS_TRYING, SITUATIONS, Case, Situation
from tests.integration.operator.queue_site import Site
from tests.support.consumers import consuming
from tests.support.verbs import orderlane

#: Durations depend on the moment of the question.
_SPAN = re.compile(r"\d+(\.\d)? (s|min|h)\b(?!')")
#: Runs of a command that cures one key at a time.
_MOST_RUNS = 8


async def _findings(it: Site) -> list[dict[str, Any]]:
    where = ("--nameserver", it.gateway.cluster.nameserver)
    code, out, err = await it.verb("doctor", GROUP, *where, "-o", "json")
    assert code in (0, 1), err
    return list(orjson.loads(out))


async def _until_found(it: Site, cause: str) -> dict[str, Any]:
    """Wait for the cause, and return its finding, which must be the first."""
    found: list[dict[str, Any]] = []
    for _ in range(160):
        found = await _findings(it)
        if any(each["cause"] == cause for each in found):
            break
        await asyncio.sleep(0.5)
    assert found, "nothing found"
    assert found[0]["cause"] == cause, [each["what"] for each in found]
    return found[0]


async def _until_cured(it: Site, cause: str) -> None:
    found: list[dict[str, Any]] = []
    for _ in range(160):
        found = [each for each in await _findings(it) if each["cause"] == cause]
        if not found:
            return
        await asyncio.sleep(0.5)
    raise AssertionError(found[0]["what"])


async def _run(command: str) -> str:
    """Run a command as printed; return its output."""
    program, *words = shlex.split(command)
    assert program == "orderlane"
    code, out, err = await orderlane(*words)
    assert code == 0, (command, err)
    return out


async def _cure(it: Site, found: dict[str, Any]) -> None:
    """Run the command of the finding, and those for the next keys of the same cause."""
    commands: list[str] = []
    while found["command"] not in commands and len(commands) < _MOST_RUNS:
        commands.append(found["command"])
        await _run(found["command"])
        await asyncio.sleep(1)
        again = [each for each in await _findings(it) if each["cause"] == found["cause"]]
        if not again:
            return
        found = again[0]


@pytest.mark.parametrize("situation", SITUATIONS, ids=[each.name for each in SITUATIONS])
@pytest.mark.failing_tasks
async def test_the_doctor_names_the_cause_and_its_command_cures(
    tmp_path: Path, situation: Situation
) -> None:
    async with AsyncExitStack() as stack:
        case = Case(tmp_path, stack)
        steps = situation.steps(case)
        await anext(steps)
        stack.push_async_callback(steps.aclose)
        it = case.it
        found = await _until_found(it, situation.cause)
        names = {
            "http": it.at.http,
            "nameserver": it.gateway.cluster.nameserver,
            "user": getpass.getuser(),
        }
        said = _SPAN.sub("…", found["what"])
        assert said == situation.sentence.format(**names)
        await _check_line(it, found)
        if found["look"]:
            assert await _run(found["look"])
        if found["command"] and not situation.by_hand:
            await _cure(it, found)
        await anext(steps, None)
        if found["command"] and situation.by_hand:
            await _cure(it, found)
        await _until_cured(it, situation.cause)


async def _check_line(it: Site, found: dict[str, Any]) -> None:
    """Assert that the doctor without a group has one line of the group, and one of all groups."""
    code, lines = await _overview(it)
    assert code == 1
    if found["cause"] == Cause.PROXY_BUSY:
        place = f"http://{it.at.http}/api/groups"
        assert lines == [
            f"groups unknown: the proxy at {place} accepted the request, but did not answer within"
            " 3 s"
        ]
        return
    line, last = lines
    said = _SPAN.sub("…", line)
    assert said.startswith(f"{GROUP}: {_SPAN.sub('…', found['what'])}")
    assert last == "healthy groups: 0 of 1"


async def _overview(it: Site) -> tuple[int, list[str]]:
    """Return the exit code of the doctor without a group, and its lines about groups."""
    where = ("--nameserver", it.gateway.cluster.nameserver, "--http", it.at.http)
    code, out, _ = await orderlane("doctor", *where)
    return code, out.partition("\n\n")[2].splitlines()


async def test_a_healthy_group_is_called_healthy(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        case = Case(tmp_path, stack)
        it = await case.site()
        where = ("--nameserver", it.gateway.cluster.nameserver)
        empty = await it.verb("doctor", GROUP, *where)
        assert empty == (0, f"group {GROUP} is idle: its topics have no messages\n", "")
        await case.client()
        await it.send(*"aab")
        await eventually(it.gateway.all_finished, within_s=20)
        idle = await it.verb("doctor", GROUP, *where)
        assert idle == (0, f"group {GROUP} is idle: all its messages are finished\n", "")
        case.handler.take(100.0)
        await it.send(*"cd")
        await until_unfinished(it, 2)
        busy = await it.verb("doctor", GROUP, *where)
        assert busy == (0, f"group {GROUP} is healthy: 2 messages to handle, none stuck\n", "")
        assert await _overview(it) == (0, ["healthy groups: 1 of 1"])


async def test_of_several_groups_the_unhealthy_ones_are_listed(tmp_path: Path) -> None:
    groups = [
        {"name": name, "topics": [{"name": TOPIC, "order_key": "KEY", **KEEPS_TRYING}]}
        for name in (GROUP, "audit", "search")
    ]
    async with AsyncExitStack() as stack:
        case = Case(tmp_path, stack)
        it = await case.site(groups=groups)
        case.handler.fail("a")
        await case.client()
        gateway = replace(it.gateway, group=Group("search"))
        await stack.enter_async_context(consuming(gateway, it.at.thrift, "searcher"))
        await it.send(*"aab")
        await eventually(lambda: failed(it) == 1, within_s=20)
        await eventually(lambda: len(it.gateway.events("finish")) >= 4, within_s=20)
        code, lines = await _overview(it)
        assert (code, [_SPAN.sub("…", line) for line in lines]) == (
            1,
            [
                "audit: no client of group audit pulls (none since the proxy started), so its"
                " queues have no owner (3 messages waiting)",
                "billing: key a is blocked in orders/broker-a_0: its message at offset 0 (stored …"
                " ago) failed 1 time (last: ValueError: no account), next retry in …, with 1"
                " message behind it",
                "healthy groups: 1 of 3",
            ],
        )


async def test_messages_of_a_broadcast_group_without_clients_are_no_backlog(tmp_path: Path) -> None:
    groups = [{"name": GROUP, "mode": "broadcast", "topics": [{"name": TOPIC}]}]
    async with AsyncExitStack() as stack:
        it = await Case(tmp_path, stack).site(groups=groups)
        await it.send(*"abc")
        assert await _overview(it) == (0, ["healthy groups: 1 of 1"])


async def test_the_first_sentence_is_in_the_api_for_each_group(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        case = Case(tmp_path, stack)
        it = await case.site(topic=KEEPS_TRYING)
        case.handler.fail("ab")
        await case.client()
        await it.send(*"aab")
        await eventually(lambda: failed(it) == 2, within_s=20)
        asked = await _ask(it, f"/api/groups/{GROUP}/diagnosis")
        found = await _findings(it)
        assert [_SPAN.sub("…", each["what"]) for each in asked["findings"]] == [
            _SPAN.sub("…", each["what"]) for each in found
        ]
        assert asked["findings"][0]["command"] == found[0]["command"]
        assert (asked["healthy"], asked["sentence"]) == (False, asked["findings"][0]["what"])
        (listed,) = await _ask(it, "/api/diagnoses")
        assert (listed["cause"], listed["sentence"]) == ("key_blocked", asked["sentence"])
        case.handler.fail("")
        for key in "ab":
            await it.rows("key", "retry", GROUP, key, *WHY)
        await eventually(it.gateway.all_finished, within_s=20)
        await asyncio.sleep(10)
        await _ask(it, "/api/diagnoses")  # it is made again in the background
        await asyncio.sleep(1)
        (listed,) = await _ask(it, "/api/diagnoses")
        assert listed["healthy"]
        assert listed["sentence"] == f"group {GROUP} is idle: all its messages are finished"


async def _ask(it: Site, path: str) -> Any:
    return orjson.loads(await asyncio.to_thread(ask_proxy, it.at.http, path))
