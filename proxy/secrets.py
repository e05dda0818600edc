"""Secrets that the proxy shows to others or signs with: named in the settings, kept elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from proxy.errors import SettingsError
from proxy.settings import SecretSettings


def read_secrets(
    settings: Iterable[SecretSettings], *, environment: Mapping[str, str] | None = None
) -> dict[str, bytes]:
    """All of them by name, line ends around them taken off.

    Raises SettingsError, with a sentence for each that is not there or empty.
    """
    environment = os.environ if environment is None else environment
    secrets, problems = {}, []
    for each in settings:
        try:
            secrets[each.name] = _read(each, environment)
        except ValueError as error:
            problems.append(f"secrets: {each.name}: {error}")
    if problems:
        raise SettingsError("\n".join(problems))
    return secrets


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
