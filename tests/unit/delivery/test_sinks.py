"""Requirements on every sink of the registry."""

from __future__ import annotations

import pickle
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from proxy.core.delivery.receiver_access import ReceiverAccess
from proxy.delivery.deliverers import make_deliverer
from proxy.settings.actions import ActionSettings
from proxy.settings.delivery import DeliverySettings, Extra
from proxy.settings.sinks.registry import SINKS, Sink

ROOT = Path(__file__).resolve().parents[3]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.mark.parametrize("sink", SINKS.values(), ids=SINKS)
def test_a_sink_has_a_module_an_action_and_a_place_in_the_documents(sink: Sink) -> None:
    assert callable(import_module(sink.module).make)
    field = ActionSettings.model_fields[sink.kind]
    assert field.description == sink.description
    assert f"`{sink.kind}`" in (ROOT / "docs/actions.md").read_text()
    assert f"- {sink.kind}:" in (ROOT / "tests/helm/every_setting.yaml").read_text()


@pytest.mark.parametrize("sink", SINKS.values(), ids=SINKS)
def test_the_extra_of_a_sink_brings_its_package_and_is_in_the_image(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = sink.settings.extra
    if extra is None:
        return
    assert any(each.startswith(extra.package) for each in EXTRAS[extra.name])
    (installed,) = [
        line for line in (ROOT / "Dockerfile").read_text().splitlines() if '"orderlane[' in line
    ]
    assert extra.name in installed.partition("[")[2].partition("]")[0].split(",")
    monkeypatch.setitem(sys.modules, extra.package, None)
    with pytest.raises(ValueError, match=rf"pip install 'orderlane\[{extra.name}\]'"):
        sink.settings.model_validate({})


def test_settings_of_actions_can_be_given_to_another_process() -> None:
    action = ActionSettings.model_validate({"push": {"urls": ["http://h"]}})
    assert pickle.loads(pickle.dumps(action)) == action


def test_an_installed_extra_is_not_reported() -> None:
    Extra("server", package="pydantic").check()


def test_a_kind_without_an_entry_has_no_deliverer() -> None:
    class Unregistered(DeliverySettings):
        kind = "unregistered"

    with pytest.raises(TypeError, match="no deliverer for an action unregistered"):
        make_deliverer("g", "t", Unregistered(), access=ReceiverAccess())
