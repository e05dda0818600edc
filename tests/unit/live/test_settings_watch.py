"""The settings file of a running proxy: reloads, refusals and their times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker_core.tasks import cancel_and_wait, spawn
from proxy.lane.lanes import Lanes
from proxy.live import file_watch
from proxy.live.file_watch import FileWatch, Watched
from proxy.live.live_groups import LiveGroups, Source
from proxy.live.settings_file import SettingsFile, digest_of
from testkit.eventually import eventually
from testkit.lanes import make_lane

BILLING: dict[str, Any] = {"name": "billing", "topics": [{"name": "orders", "order_key": "KEY"}]}


# ---- times ----------------------------------------------------------------------------------


def test_a_content_counts_once_two_looks_saw_it() -> None:
    """Half of a file that is being written is often valid, too."""
    watched = Watched()
    said = [watched.look(each) for each in (b"a", b"a", b"a", b"half", b"whole", b"whole")]
    assert said == [False, True, False, False, False, True]


def test_a_reload_reads_the_file_without_waiting_for_a_second_check() -> None:
    watched = Watched()
    assert watched.look(b"a", at_once=True)
    assert watched.look(b"a", at_once=True)
    assert not watched.look(b"a")


def test_a_file_that_is_gone_is_nothing_to_load() -> None:
    watched = Watched()
    contents = (b"a", b"a", None, b"b", None, b"b", b"b", b"a", b"a")
    said = [watched.look(each) for each in contents]
    assert said == [False, True, False, False, False, False, True, False, True]
    assert not watched.look(None, at_once=True)


# ---- contents -------------------------------------------------------------------------------


class Site:
    """A settings file, and the groups served from it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            self.write({"groups": [BILLING]})
        self.lanes = Lanes(make_lane)
        self.file = SettingsFile(path, environment={})
        self.problems: list[str] = []
        self.live = LiveGroups(
            self.lanes,
            changed=lambda _: None,
            give_up=_nothing,
            unservable=lambda _source, _groups: self.problems,
        )
        self.watch = FileWatch(self.file, self.live)
        self.live.give(Source.FILE, self.file.settings.groups)

    def write(self, content: str | dict[str, Any]) -> None:
        """Write in place, as an editor may."""
        self.path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))

    @property
    def served(self) -> list[str]:
        return sorted(lane.name for lane in self.lanes)

    async def refused(self) -> str:
        """Return the reason of a refusal, once there is one."""
        await eventually(lambda: bool(self.watch.state.refused))
        return self.watch.state.refused


async def _nothing(_: object) -> None:
    return


@asynccontextmanager
async def watching(path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setattr(file_watch, "LOOK_S", 0.01)
    site = Site(path)
    task = spawn(site.watch.run(), name="watch")
    try:
        yield site
    finally:
        await cancel_and_wait(task)
        await site.live.close()


async def test_groups_follow_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with watching(tmp_path / "orderlane.yaml", monkeypatch) as site:
        site.write({"groups": [BILLING, {**BILLING, "name": "audit"}]})
        await eventually(lambda: site.served == ["audit", "billing"])
        site.write({"groups": []})
        await eventually(lambda: site.served == [])


async def test_the_digest_is_that_of_the_served_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watching(tmp_path / "orderlane.yaml", monkeypatch) as site:
        assert site.watch.state.digest == digest_of(site.path.read_bytes())
        site.write({"groups": []})
        empty = digest_of(site.path.read_bytes())
        await eventually(lambda: site.watch.state.digest == empty)
        site.write("groups: [")
        await site.refused()
        assert site.watch.state.digest == empty


async def test_a_file_that_is_replaced_as_kubernetes_does_it_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ConfigMap is a link to a link to a folder, and the middle one is swapped."""
    for version, groups in (("v1", [BILLING]), ("v2", [BILLING, {**BILLING, "name": "audit"}])):
        (tmp_path / version).mkdir()
        (tmp_path / version / "orderlane.yaml").write_text(yaml.safe_dump({"groups": groups}))
    (tmp_path / "data").symlink_to("v1")
    (tmp_path / "orderlane.yaml").symlink_to("data/orderlane.yaml")
    async with watching(tmp_path / "orderlane.yaml", monkeypatch) as site:
        (tmp_path / "data.new").symlink_to("v2")
        (tmp_path / "data.new").replace(tmp_path / "data")
        await eventually(lambda: site.served == ["audit", "billing"])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("groups: [", "invalid YAML"),
        ("", "is empty: write 'groups: []'"),
        ("groups:\n- name: billing\n  topics: [{name: orders, tag: x}]", "did you mean tags?"),
    ],
)
async def test_a_bad_file_is_refused_and_the_old_groups_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str, sentence: str
) -> None:
    async with watching(tmp_path / "orderlane.yaml", monkeypatch) as site:
        before = site.live.groups
        site.write(content)
        assert sentence in await site.refused()
        assert site.live.groups == before
        assert site.watch.state.refusals == 1, "it is read once"
        site.write({"groups": [BILLING, {**BILLING, "name": "audit"}]})
        await eventually(lambda: site.served == ["audit", "billing"])
        assert site.watch.state.refused == ""


async def test_changes_outside_the_groups_wait_for_a_restart_and_hold_up_no_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watching(tmp_path / "orderlane.yaml", monkeypatch) as site:
        site.write({"commit_every_s": 9, "limits": {"memory_bytes": 4096}, "groups": []})
        await eventually(lambda: site.served == [])
        assert site.watch.state.restart_needed == ["commit_every_s", "limits.memory_bytes"]
        site.write({"groups": [BILLING]})
        await eventually(lambda: site.served == ["billing"])
        assert site.watch.state.restart_needed == []


async def test_a_file_that_is_deleted_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watching(tmp_path / "orderlane.yaml", monkeypatch) as site:
        site.path.unlink()
        await eventually(lambda: site.watch.state.missing)
        assert site.served == ["billing"]
        site.write({"groups": []})
        await eventually(lambda: site.served == [])
        assert not site.watch.state.missing


async def test_a_reload_reads_at_once_what_was_refused_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watching(tmp_path / "orderlane.yaml", monkeypatch) as site:
        site.write("groups: [")
        await site.refused()
        site.watch.reload()
        await eventually(lambda: site.watch.state.refusals == 2)


async def test_groups_that_cannot_be_served_yet_are_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Kubernetes, a certificate that a group names may come after the settings that name it."""
    async with watching(tmp_path / "orderlane.yaml", monkeypatch) as site:
        site.problems.append("its push: /tls/ca.crt cannot be read")
        site.write({"groups": [BILLING, {**BILLING, "name": "audit"}]})
        assert await site.refused() == "its push: /tls/ca.crt cannot be read"
        await asyncio.sleep(1)
        assert (site.watch.state.refusals, site.served) == (1, ["billing"])
        site.problems.clear()
        await eventually(lambda: site.served == ["audit", "billing"])
        state = site.watch.state
        assert (state.refused, state.digest) == ("", digest_of(site.path.read_bytes()))


async def test_groups_that_wait_are_not_served_once_the_file_says_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watching(tmp_path / "orderlane.yaml", monkeypatch) as site:
        site.problems.append("not yet")
        site.write({"groups": [BILLING, {**BILLING, "name": "audit"}]})
        await site.refused()
        site.path.unlink()
        await eventually(lambda: site.watch.state.missing)
        site.problems.clear()
        await asyncio.sleep(1)
        assert site.served == ["billing"]
