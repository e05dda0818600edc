"""Secrets for signing and authentication: settings name them, files or environment variables hold
them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from broker_core.remoting.signing import Credentials
from proxy.core.delivery.push_url import AllowedHosts
from proxy.core.delivery.secret import Secret
from proxy.errors import SettingsError
from proxy.settings.proxy_settings import BrokerAccountSettings, SecretSettings


def read_secrets(
    settings: Iterable[SecretSettings], *, environment: Mapping[str, str] | None = None
) -> dict[str, Secret]:
    """Return all secrets by name, without surrounding line ends.

    Raises SettingsError with one sentence for each that is missing or empty.
    """
    environment = os.environ if environment is None else environment
    secrets, problems = {}, []
    for each in settings:
        try:
            hosts = None if each.hosts is None else AllowedHosts(frozenset(each.hosts))
            secrets[each.name] = Secret(_read(each, environment), hosts)
        except ValueError as error:
            problems.append(f"secrets: {each.name}: {error}")
    if problems:
        raise SettingsError("\n".join(problems))
    return secrets


def credentials_of(
    settings: BrokerAccountSettings, secrets: Mapping[str, Secret]
) -> Credentials | None:
    """Return the account that signs requests to brokers, or None if requests are not signed.

    Raises SettingsError if its secret is missing or is not UTF-8.
    """
    if settings.access_key is None or settings.secret is None:
        return None
    try:
        return Credentials(settings.access_key, secrets[settings.secret].value.decode())
    except KeyError:
        why = "which is not among the proxy's secrets"
    except UnicodeDecodeError:
        why = "a secret that is not UTF-8"
    raise SettingsError(f"broker_account.secret: names {settings.secret!r}, {why}")


def _read(settings: SecretSettings, environment: Mapping[str, str]) -> bytes:
    if settings.environment is not None:
        place = f"the environment variable {settings.environment}"
        if settings.environment not in environment:
            raise ValueError(f"{place} is not set")
        value = os.fsencode(environment[settings.environment])
    else:
        place = str(settings.file)
        try:
            value = Path(place).read_bytes()
        except OSError as error:
            raise ValueError(f"cannot read {place}: {error.strerror or error}") from None
    if not (value := value.strip(b"\r\n")):
        raise ValueError(f"{place} is empty")
    return value
