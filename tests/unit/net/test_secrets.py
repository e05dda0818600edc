from __future__ import annotations

from pathlib import Path

import pytest

from proxy.core.delivery.secret import Secret
from proxy.errors import SettingsError
from proxy.net.secrets import read_secrets
from proxy.settings.proxy_settings import SecretSettings


def test_a_secret_stands_in_the_environment_or_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff a \r\n")
    settings = [
        SecretSettings(name="a", environment="A"),
        SecretSettings(name="b", file=str(tmp_path / "key")),
    ]

    assert read_secrets(settings, environment={"A": "ü x"}) == {
        "a": Secret("ü x".encode()),
        "b": Secret(b"\xff a "),
    }


def test_each_missing_secret_gives_a_sentence_and_no_value_is_shown(
    tmp_path: Path,
) -> None:
    (tmp_path / "empty").write_text("\n")
    settings = [
        SecretSettings(name="a", environment="A"),
        SecretSettings(name="b", file=str(tmp_path / "none")),
        SecretSettings(name="c", file=str(tmp_path / "empty")),
        SecretSettings(name="d", environment="D"),
    ]
    with pytest.raises(SettingsError) as caught:
        read_secrets(settings, environment={"D": "hush"})

    assert str(caught.value).splitlines() == [
        "secrets: a: the environment variable A is not set",
        f"secrets: b: cannot read {tmp_path}/none: No such file or directory",
        f"secrets: c: {tmp_path}/empty is empty",
    ]
