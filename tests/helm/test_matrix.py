"""All options, alone and together, with unusual names of releases."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import kubernetes_validate
import pytest
from helm_python import validate_release_name

from tests.helm.options import BROKERS, matrix, together
from tests.helm.release_names import RELEASES
from tests.helm.rendering import Rendered, laid_over
from tests.helm.test_chart import ELSEWHERE, VERSIONS

#: A name of a Service; stricter than what others may have.
LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
#: A StatefulSet's name and a hash of 10 characters are a label's value.
LONGEST = {"StatefulSet": 52, "Deployment": 46}
LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")

cases = pytest.mark.parametrize(
    ("values", "release"),
    [
        pytest.param(values, RELEASES[number % len(RELEASES)], id=name)
        for number, (name, values) in enumerate(matrix())
    ],
)


@cache
def validate(manifest: str, version: str) -> None:
    kubernetes_validate.validate(json.loads(manifest), version, strict=True)


def checked(rendered: Rendered, release: str, *, version: str = VERSIONS[-1]) -> None:
    """Validate what is Kubernetes' own. Objects that differ by the release's name, which is checked
    elsewhere, are validated once.
    """
    base = rendered.all("PodDisruptionBudget")[0]["metadata"]["name"].removesuffix("-proxy")
    for manifest in rendered.manifests:
        if manifest["apiVersion"].partition("/")[0] not in ELSEWHERE:
            text = json.dumps(manifest, sort_keys=True).replace(base, "NAME")
            text = re.sub(r'("checksum/\w+": )"\w+"', r'\1"0"', text)
            validate(text.replace(f'"{release}"', '"RELEASE"'), version)


def names(rendered: Rendered) -> Iterator[tuple[str, str]]:
    """Yield kind and name of all objects, and of those that StatefulSets make."""
    for each in rendered.manifests:
        name = each["metadata"]["name"]
        yield each["kind"], name
        if each["kind"] == "StatefulSet":
            for number in range(each["spec"]["replicas"]):
                yield "Pod", f"{name}-{number}"
                for claim in each["spec"].get("volumeClaimTemplates", ()):
                    claimed = f"{claim['metadata']['name']}-{name}-{number}"
                    yield "PersistentVolumeClaim", claimed


def check_names(rendered: Rendered) -> None:
    for kind, name in names(rendered):
        assert LABEL.fullmatch(name), (kind, name)
        longest = LONGEST.get(kind, 253 if kind == "PersistentVolumeClaim" else 63)
        assert len(name) <= longest, (kind, name)
    for labels in all_labels(rendered.manifests):
        for name, value in labels.items():
            assert isinstance(value, str), (name, value)
            assert LABEL_VALUE.fullmatch(value), (name, value)


def all_labels(node: Any) -> Iterator[dict[str, Any]]:
    """Yield all labels and selectors below *node*."""
    if isinstance(node, dict):
        for name, inner in node.items():
            named = name in ("labels", "matchLabels", "selector") and isinstance(inner, dict)
            if named and "matchLabels" not in inner:
                yield inner
            yield from all_labels(inner)
    elif isinstance(node, list):
        for inner in node:
            yield from all_labels(inner)


@cases
def test_a_combination_of_options_is_valid(values: dict[str, Any], release: str) -> None:
    rendered = Rendered.of(values, name=release)
    checked(rendered, release)
    check_names(rendered)
    listed = list(names(rendered))
    assert len(listed) == len(set(listed))
    selected_by_one(rendered)


def selected_by_one(rendered: Rendered) -> None:
    """Each pod belongs to one workload and one budget, and each policy and service selects pods."""
    templates = rendered.templates()
    for kind in ("Deployment", "StatefulSet", "PodDisruptionBudget"):
        for template in templates:
            chosen = [
                each
                for each in rendered.all(kind)
                if each["spec"]["selector"]["matchLabels"].items()
                <= template["metadata"]["labels"].items()
            ]
            assert len(chosen) <= 1
    for service in rendered.all("Service"):
        selector = service["spec"]["selector"].items()
        assert any(selector <= each["metadata"]["labels"].items() for each in templates)


@pytest.mark.parametrize("shape", BROKERS)
def test_all_options_are_valid_in_the_oldest_version(shape: str) -> None:
    rendered = Rendered.of(laid_over(together(), BROKERS[shape]), name="shop")
    checked(rendered, "shop", version=VERSIONS[0])


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({}, id="default"),
        pytest.param(laid_over(together(), BROKERS["elected masters"]), id="all options"),
        pytest.param({"nameOverride": "x", "embedded": {"brokers": 99}}, id="another name"),
    ],
)
def test_releases_have_valid_names_and_share_none(values: Mapping[str, Any]) -> None:
    owners: dict[tuple[str, str], str] = {}
    shared = {("ServiceAccount", "runner")}  # named by the values
    for release in RELEASES:
        validate_release_name(release)
        rendered = Rendered.of(values, name=release)
        check_names(rendered)
        for each in set(names(rendered)) - shared:
            assert owners.setdefault(each, release) == release, each
    assert len(set(RELEASES)) == len(RELEASES) >= 30


def test_a_name_that_is_valid_stays_as_it_is() -> None:
    for release, base in (
        ("shop", "shop-orderlane"),
        ("orderlane", "orderlane"),
        ("a" * 30, f"{'a' * 30}-orderlane"),
    ):
        assert Rendered.of({}, name=release).one("Deployment", f"{base}-proxy")
    lanes = Rendered.of({"nameOverride": "lanes"})
    assert lanes.one("Deployment", "shop-lanes-proxy")
    labels = lanes.pods()["proxy"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/name"] == "lanes"
    assert Rendered.of({"fullnameOverride": "gateway"}).one("Deployment", "gateway-proxy")
