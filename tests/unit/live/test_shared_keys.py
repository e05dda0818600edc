"""The key that proxies of one account share on one machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.core.delivery.secret import Secret
from proxy.errors import SettingsError
from proxy.live.shared_keys import store_keys_of
from proxy.live.stored_group import StoredGroup
from proxy.settings.proxy_settings import Settings

VALUE = StoredGroup(1, {"topics": []})
LOCAL = Settings(group_store="nameserver")


def test_two_proxies_of_an_account_share_the_key_that_the_first_creates(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    first = store_keys_of(LOCAL, {}, environment=environment)
    second = store_keys_of(LOCAL, {}, environment=environment)
    second.check("a", first.sign("a", VALUE))
    (file,) = (tmp_path / "orderlane").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    other = store_keys_of(LOCAL, {}, environment={"XDG_STATE_HOME": str(tmp_path / "other")})
    with pytest.raises(ValueError, match="not among group_store_keys"):
        other.check("a", first.sign("a", VALUE))


def test_a_key_that_others_can_read_or_that_is_no_file_is_refused(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    store_keys_of(LOCAL, {}, environment=environment)
    (tmp_path / "orderlane" / "group-store.key").chmod(0o644)
    with pytest.raises(SettingsError, match="can be read by other accounts"):
        store_keys_of(LOCAL, {}, environment=environment)
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match="cannot be used: Not a directory"):
        store_keys_of(LOCAL, {}, environment={"XDG_STATE_HOME": str(tmp_path / "file")})


@pytest.mark.parametrize("key", [b"short", b""])
def test_a_short_key_is_refused(key: bytes) -> None:
    named = Settings.model_validate(
        {
            "group_store": "nameserver",
            "group_store_keys": ["k"],
            "secrets": [{"name": "k", "environment": "K"}],
        }
    )
    with pytest.raises(SettingsError, match="at least 32 are needed"):
        store_keys_of(named, {"k": Secret(key)})
