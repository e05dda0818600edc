"""Every setting passes through values, schema and templates with its meaning."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from broker_core.broker.settings import BrokerSettings
from proxy.cli.servers import load_broker_settings
from proxy.settings.proxy_settings import Settings, load_settings
from tests.helm.rendering import NAMESERVERS, Rendered
from tools.chart_schema import OWN_BROKER, OWN_PROXY
from tools.setting_fields import setting_fields
from tools.tables import ROOT

ELECTED = {
    "role": "elected",
    "broker_id": 2,
    "voters": ["1@one:10911", "2@two:10911", "3@three:10911"],
    "election_timeout_s": 6,
}
VALUES = yaml.safe_load((ROOT / "tests/helm/every_setting.yaml").read_text())


def values_of(model: BaseModel, path: str = "") -> Iterator[tuple[str, Any]]:
    """Return path and value of every set setting, as ``setting_fields`` names them."""
    for name in type(model).model_fields:
        value = getattr(model, name)
        yield f"{path}{name}", value
        listed = isinstance(value, tuple)
        for each in value if listed else (value,):
            if isinstance(each, BaseModel):
                yield from values_of(each, f"{path}{name}{'[]' if listed else ''}.")


def unchanged(model: BaseModel) -> set[str]:
    """Return settings that no value in *model* changes from their default."""
    defaults = {
        path: None if field.default is PydanticUndefined else field.default
        for path, field in setting_fields(type(model))
    }
    changed = {path for path, value in values_of(model) if value != defaults.get(path)}
    return defaults.keys() - changed


def test_every_setting_of_a_proxy_arrives(tmp_path: Path) -> None:
    file = tmp_path / "orderlane.yaml"
    file.write_text(Rendered.of(VALUES).settings("proxy"))
    arrived = load_settings(file, environment={})
    overrides = {
        "nameserver": ",".join(NAMESERVERS),
        "listen.thrift": "0.0.0.0:9713",
        "listen.http": "0.0.0.0:9714",
    }
    file.write_text(yaml.safe_dump({**VALUES["settings"], "groups": VALUES["groups"]}))
    assert arrived == load_settings(file, overrides, environment={})
    assert unchanged(arrived) <= OWN_PROXY.keys()


def test_every_setting_of_a_broker_arrives(tmp_path: Path) -> None:
    file = tmp_path / "broker.yaml"
    file.write_text(Rendered.of(VALUES).settings("broker"))
    arrived = load_broker_settings(file, {}, data=tmp_path)
    own = {"data": "/data", "listen": "0.0.0.0:10911", "http": "0.0.0.0:10914"}
    own["nameserver"] = ",".join(NAMESERVERS)
    assert arrived == BrokerSettings.model_validate({**VALUES["embedded"]["settings"], **own})
    # A broker is a slave or one of the voters, so two files have all settings.
    elected = BrokerSettings.model_validate({**ELECTED, **own})
    assert unchanged(arrived) & unchanged(elected) <= OWN_BROKER.keys()


def test_a_setting_that_is_left_out_would_be_seen() -> None:
    assert "commit_every_s" in unchanged(Settings())
    assert "groups[].topics[].actions[].push.urls" in unchanged(Settings())
    assert "commit_every_s" not in unchanged(Settings(commit_every_s=1))
