"""Verbs on a whole group, one of whose topics does not exist yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from testkit.gateway import GROUP, TOPIC
from tests.integration.operator.queue_site import site

WHY = ("--reason", "a test")
TOPICS: list[dict[str, Any]] = [{"name": TOPIC, "order_key": "KEY"}, {"name": "later"}]
GROUPS = [{"name": GROUP, "topics": TOPICS}]


async def test_a_group_is_paused_and_resumed_in_the_topics_that_exist(tmp_path: Path) -> None:
    async with site(tmp_path, queues=2, groups=GROUPS) as it:
        for verb in ("pause", "resume"):
            rows = await it.rows("groups", verb, GROUP, *WHY)
            assert sorted(row["queue"].partition("/")[0] for row in rows) == [TOPIC] * 2
        said = await it.refused("key", "pause", GROUP, "k", "--topic", "later", *WHY)
        assert said.endswith(f"answers 404: topic 'later' of group '{GROUP}' does not exist yet")


async def test_offsets_are_shown_and_reset_in_the_topics_that_exist(tmp_path: Path) -> None:
    async with site(tmp_path, queues=2, groups=GROUPS) as it:
        await it.send(*"abcd")
        rows = await it.rows("offsets", "show", GROUP)
        assert [row["topic"] for row in rows] == [TOPIC] * 2
        rows = await it.rows("offsets", "reset", GROUP, "--skip", "--yes", *WHY)
        assert sum(row["skipped"] for row in rows) == 4
        missing = f"answers 404: topic 'later' of group '{GROUP}' does not exist yet"
        for words in (("show",), ("reset", "--skip", "--dry-run", *WHY)):
            said = await it.refused("offsets", words[0], GROUP, "--topic", "later", *words[1:])
            assert said.endswith(missing)
