"""The keys for stored groups: from the settings, or one that the proxies of this account share.

On one machine the nameserver listens on loopback and all proxies run under one account. Then a
file of the account, created by the first proxy, replaces the setting.
"""

from __future__ import annotations

import os
import secrets as randomness
from collections.abc import Mapping
from pathlib import Path

from proxy.core.delivery.secret import Secret
from proxy.errors import SettingsError
from proxy.live.store_keys import StoreKeys
from proxy.settings.proxy_settings import Settings

_FILE = Path("orderlane", "group-store.key")


def store_keys_of(
    settings: Settings,
    secrets: Mapping[str, Secret],
    *,
    environment: Mapping[str, str] | None = None,
) -> StoreKeys:
    """Return the keys of ``group_store_keys``, or the account's own one if that is empty.

    Raises SettingsError with one sentence if a key is missing or unsuitable.
    """
    names = settings.group_store_keys
    try:
        if names:
            return StoreKeys([secrets[name].value for name in names])
        return StoreKeys([_local_key(os.environ if environment is None else environment)])
    except KeyError as error:
        raise SettingsError(
            f"group_store_keys: names {error.args[0]!r}, which is not among the proxy's secrets"
        ) from None
    except ValueError as error:
        raise SettingsError(f"group_store_keys: {error}") from None


def _local_key(environment: Mapping[str, str]) -> bytes:
    """Return the key of this account; create it if there is none. Raises ValueError."""
    state = environment.get("XDG_STATE_HOME")
    path = (Path(state) if state else Path.home() / ".local" / "state") / _FILE
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _create(path)
        key = path.read_bytes().strip()
        if path.stat().st_mode & 0o077:
            raise ValueError(f"{path} can be read by other accounts: allow only its owner (0600)")
    except (OSError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ValueError(
            f"is empty, and the key of this account in {path} cannot be used: {reason}"
        ) from None
    return key


def _create(path: Path) -> None:
    """Create the key unless it exists; of two proxies at a time, one creates it."""
    if path.exists():
        return
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.touch(mode=0o600)
    new.write_text(f"{randomness.token_hex(32)}\n", encoding="ascii")
    try:
        os.link(new, path)
    except FileExistsError:
        pass
    finally:
        new.unlink()
