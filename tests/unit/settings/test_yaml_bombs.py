"""Small settings files that expand excessively."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.errors import SettingsError
from proxy.settings.proxy_settings import load_settings

PATH = Path("orderlane.yaml")


def refused(text: str) -> str:
    with pytest.raises(SettingsError) as refusal:
        load_settings(PATH, environment={}, content=text.encode())
    return str(refusal.value)


def test_aliases_of_aliases_are_refused_at_once() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 20)]
    assert "aliases expand to more than 100,000 values" in refused("\n".join(lines))


@pytest.mark.parametrize("text", ["groups: &a [*a]", "listen: &a {tls: *a}", "a: &a {? [*a] : b}"])
def test_a_recursive_alias_is_refused(text: str) -> None:
    assert "aliases expand to more than 100,000 values" in refused(text)


def test_a_file_nested_without_end_is_refused() -> None:
    assert "nested too deeply" in refused("groups: " + "[" * 500)


def test_a_few_aliases_are_expanded() -> None:
    text = """
groups:
  - {name: a, topics: &topics [{name: orders, order_key: KEY}]}
  - {name: b, topics: *topics}
"""
    groups = load_settings(PATH, environment={}, content=text.encode()).groups
    assert groups[0].topics == groups[1].topics
