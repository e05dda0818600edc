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


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nameserver: !!bool maybe", "'maybe' is not a value of the type 'bool'"),
        ("nameserver: !!timestamp soon", "'soon' is not a value of the type 'timestamp'"),
        ("nameserver: !!int ''", "'' is not a value of the type 'int'"),
        ("nameserver: !!float ''", "'' is not a value of the type 'float'"),
        ("nameserver: !!set [a]", "expected a mapping node, but found sequence"),
        (f"nameserver: 12{':59' * 5_000}.5", "is not a value of the type 'float'"),
        ("!!bool maybe: 1", "'maybe' is not a value of the type 'bool'"),
    ],
)
def test_values_that_are_none_of_their_type_are_refused(text: str, sentence: str) -> None:
    said = refused(text)
    assert said.startswith("orderlane.yaml, line 1, column ")
    assert sentence in said


def test_such_a_variable_is_a_text() -> None:
    with pytest.raises(SettingsError, match="is '!!bool maybe': should be host:port"):
        load_settings(None, environment={"ORDERLANE_NAMESERVER": "!!bool maybe"})
