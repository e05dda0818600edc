"""A dictionary that tracks its changed keys."""

from __future__ import annotations

import pytest

from proxy.core.jobs.tracked_dict import TrackedDict


def test_set_and_removed_keys_are_tracked_until_cleared() -> None:
    noted: TrackedDict[str, int] = TrackedDict({"a": 1, "b": 2, "c": 3})
    assert not noted.changed
    noted["a"] = 5
    del noted["b"]
    assert noted.pop("c") == 3
    assert noted.pop("none", 7) == 7
    noted["new"] = 1
    assert noted.changed == {"a", "b", "c", "new"}
    assert noted == {"a": 5, "new": 1}
    noted.changed.clear()
    with pytest.raises(KeyError):
        noted.pop("none")
    with pytest.raises(KeyError):
        del noted["none"]
    assert not noted.changed


@pytest.mark.parametrize("way", ["clear", "popitem", "setdefault", "update"])
def test_no_other_way_of_changing_it_goes_unnoted(way: str) -> None:
    with pytest.raises(TypeError, match="key by key"):
        getattr(TrackedDict({"a": 1}), way)("a")
