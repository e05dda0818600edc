"""A restarted worker gets the settings of the process, and the groups that the others serve."""

from __future__ import annotations

from pathlib import Path

from proxy.live.group_changes import restart_needed
from proxy.live.settings_file import SettingsFile, digest_of
from proxy.workers.served_file import ServedFile

_FIRST = b"ownership: {drain_s: 5}\n"
_NEWER = b"ownership: {drain_s: 7}\ngroups: [{name: billing, topics: [{name: orders}]}]\n"


async def test_groups_that_a_worker_serves_are_those_of_the_next_start(tmp_path: Path) -> None:
    path = tmp_path / "orderlane.yaml"
    path.write_bytes(_FIRST)
    served = ServedFile(SettingsFile(path, environment={}))
    path.write_bytes(_NEWER)
    await served.look()

    served.reported(digest_of(_FIRST))
    assert served.contents == (_FIRST, _FIRST)
    path.write_bytes(b"groups: [")
    await served.look()
    served.reported(digest_of(_NEWER))
    assert served.contents == (_FIRST, _NEWER)


async def test_a_content_that_no_worker_serves_is_not_passed_on(tmp_path: Path) -> None:
    path = tmp_path / "orderlane.yaml"
    path.write_bytes(_FIRST)
    served = ServedFile(SettingsFile(path, environment={}))
    for number in range(100):
        path.write_bytes(b"groups: [ #%d" % number)
        await served.look()
    path.unlink()
    await served.look()

    for digest in (digest_of(_FIRST), digest_of(_NEWER), ""):
        served.reported(digest)
    assert served.contents == (_FIRST, _FIRST)


def test_a_restarted_worker_keeps_the_settings_beside_the_groups(tmp_path: Path) -> None:
    path = tmp_path / "orderlane.yaml"
    path.write_bytes(b"groups: [")  # invalid meanwhile
    file = SettingsFile(path, environment={}, content=_FIRST, with_groups=_NEWER)

    assert file.settings.ownership.drain_s == 5
    assert [group.name for group in file.settings.groups] == ["billing"]
    assert file.digest == digest_of(_NEWER)
    assert restart_needed(file.settings, file.load(_NEWER)) == ["ownership.drain_s"]
