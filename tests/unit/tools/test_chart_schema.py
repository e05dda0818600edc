"""The chart's values and the documents contain every setting."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from pydantic import BaseModel

from broker_core.broker.settings import BrokerSettings
from proxy.settings.proxy_settings import Settings
from tools import chart_schema
from tools.chart_schema import FILE, OWN_BROKER, OWN_PROXY, main, text
from tools.setting_fields import setting_fields
from tools.tables import ROOT

VALUES = ROOT / "helm/values.yaml"
SETTINGS = pytest.mark.parametrize(
    ("model", "below", "own"),
    [
        pytest.param(Settings, ("settings",), OWN_PROXY, id="proxy"),
        pytest.param(BrokerSettings, ("embedded", "settings"), OWN_BROKER, id="broker"),
    ],
)


def schema() -> dict[str, Any]:
    return dict(orjson.loads(FILE.read_bytes()))


def properties(node: dict[str, Any], whole: dict[str, Any], path: str = "") -> Iterator[Any]:
    """Yield path and schema of everything below *node*, following references."""
    if "$ref" in node:
        node = whole["definitions"][node["$ref"].rpartition("/")[2]]
    for name, inner in node.get("properties", {}).items():
        yield f"{path}{name}", inner
        yield from properties(inner, whole, f"{path}{name}.")
    for inner in node.get("anyOf", ()):
        yield from properties(inner, whole, path)
    if "items" in node:
        yield from properties(node["items"], whole, f"{path.removesuffix('.')}[].")


def test_the_schema_of_the_values_is_fresh() -> None:
    """If this fails: python -m tools.chart_schema."""
    assert FILE.read_text() == text()
    assert main(["--check"]) is None


def test_a_stale_schema_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "values.schema.json"
    file.write_text(text().replace("drain_s", "drain_ms"))
    monkeypatch.setattr(chart_schema, "FILE", file)
    assert "stale" in str(main(["--check"]))
    assert main([]) is None
    assert main(["--check"]) is None


@SETTINGS
def test_every_setting_is_in_the_schema_with_its_type_and_meaning(
    model: type[BaseModel], below: tuple[str, ...], own: dict[str, str]
) -> None:
    whole = schema()
    node = whole
    for name in below:
        node = node["properties"][name]
    known = dict(properties(node, whole))
    if model is Settings:  # they are at the top of the values
        groups = {"properties": {"groups": whole["properties"]["groups"]}}
        known |= dict(properties(groups, whole))
    fields = dict(setting_fields(model))
    assert len(fields) > 30
    assert set(fields) <= set(known)
    for path, field in fields.items():
        assert known[path]["description"], path
        if path not in own:
            assert {"type", "anyOf", "$ref", "enum"} & set(known[path]), path
            assert known[path]["description"] == " ".join((field.description or "").split()), path


@SETTINGS
def test_every_setting_is_in_the_documents(
    model: type[BaseModel], below: tuple[str, ...], own: dict[str, str]
) -> None:
    """Counted from the models' own schemas, independent of the tables' generator."""
    document = (ROOT / "docs/settings.md").read_text()
    marked = "settings" if model is Settings else "broker-settings"
    table = document.partition(f"<!-- table: {marked} -->")[2].partition("<!-- end -->")[0]
    rows = re.findall(r"^\| `([\w.\[\]]+)` \|", table, flags=re.M)
    made = model.model_json_schema()
    whole = {"definitions": made.pop("$defs")}
    leaves = {path for path, inner in properties(made, whole) if "$ref" not in inner}
    assert leaves == set(rows)
    assert len(rows) == len(set(rows))


def test_what_stands_elsewhere_does_not_hide_a_setting_that_is_none() -> None:
    assert set(OWN_PROXY) <= dict(setting_fields(Settings)).keys()
    assert set(OWN_BROKER) <= dict(setting_fields(BrokerSettings)).keys()


def test_the_values_and_their_schema_have_the_same_names() -> None:
    def names(values: Any, path: str = "") -> Iterator[str]:
        for name, value in values.items() if isinstance(values, dict) else ():
            yield f"{path}{name}"
            yield from names(value, f"{path}{name}.")

    whole = schema()
    free = ("resources.", "behavior.", "labels.", "SecurityContext.", "settings.", "global")
    known = {
        path
        for path, _ in properties(whole, whole)
        if "[]" not in path and not any(each in f"{path}." for each in free)
    }
    given = {
        path
        for path in names(yaml.safe_load(VALUES.read_text()))
        if not any(each in f"{path}." for each in free)
    }
    assert given == known


def test_unknown_names_are_refused_everywhere() -> None:
    whole = schema()
    closed = [whole, *whole["definitions"].values()]
    closed += [each for _, each in properties(whole, whole)]
    for node in closed:
        if "properties" in node:
            assert node["additionalProperties"] is False
