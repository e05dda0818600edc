"""Settings of the embedded broker: file, environment, options."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.cli.servers import load_broker_settings
from proxy.errors import SettingsError
from proxy.settings.proxy_settings import load_settings

DATA = Path("somewhere")


def test_options_lie_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text("broker_name: from-file\nflush: sync\ndefault_queues: 3\n")
    monkeypatch.setenv("ORDERLANE_BROKER__BROKER_NAME", "from-environment")
    monkeypatch.setenv("ORDERLANE_BROKER__FLUSH", "sync")
    settings = load_broker_settings(file, {"flush": "async", "listen": None}, data=DATA)
    assert (settings.broker_name, settings.flush) == ("from-environment", "async")
    assert (settings.default_queues, settings.data) == (3, DATA)


def test_a_variable_that_names_no_setting_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORDERLANE_BROKER__NAME", "broker-b")
    with pytest.raises(SettingsError, match=r"^ORDERLANE_BROKER__NAME: "):
        load_broker_settings(None, {}, data=DATA)


def test_a_proxy_passes_over_the_variables_of_a_broker() -> None:
    variables = {"ORDERLANE_BROKER__BROKER_NAME": "broker-b", "ORDERLANE_COMMIT_EVERY_S": "2"}
    assert load_settings(environment=variables).commit_every_s == 2.0


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"role": "slave", "nameserver": "a:1"}, "broker_id is 0"),
        ({"role": "slave", "broker_id": 1}, "finds its master through a nameserver"),
        ({"broker_id": 1}, "a master's is 0"),
        ({"in_sync_replicas": 2}, "are for replication: sync"),
        ({"slave_timeout_s": 2}, "are for replication: sync"),
        ({"replication": "sync", "total_replicas": 1}, "more than total_replicas"),
        ({"replication": "sync", "in_sync_replicas": 1}, "in_sync_replicas"),
        ({"lock_in_strict_mode": True}, "needs total_replicas"),
        ({"lock_in_strict_mode": True, "total_replicas": 3}, "finds the replicas through"),
    ],
)
def test_settings_of_replicas_that_do_not_fit_are_refused(
    options: dict[str, object], problem: str
) -> None:
    with pytest.raises(SettingsError, match=problem):
        load_broker_settings(None, options, data=DATA)


def test_how_many_replicas_a_send_needs() -> None:
    assert load_broker_settings(None, {}, data=DATA).needed_replicas == 1
    sync = {"replication": "sync", "in_sync_replicas": 3}
    assert load_broker_settings(None, {"replication": "sync"}, data=DATA).needed_replicas == 2
    assert load_broker_settings(None, sync, data=DATA).needed_replicas == 3
