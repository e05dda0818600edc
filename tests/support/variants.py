"""Variants of a long test, of which ``make test`` takes the first and another target the rest.

``.ci/run`` takes a part of the rest (``in_part``), ``make everything`` all of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

_MANY = 20


def first_of(
    name: str, variants: Sequence[Any], *, count: int = 1, **options: Any
) -> pytest.MarkDecorator:
    """Return ``parametrize`` with all *variants*; those after the first *count* are slow tests.

    *options* are those of ``parametrize``.
    """
    slow = [pytest.param(each, marks=pytest.mark.slow) for each in variants[count:]]
    return pytest.mark.parametrize(name, [*variants[:count], *slow], **options)


def in_part(tests: Iterable[tuple[str, bool]]) -> set[str]:
    """Return the node ids that ``--part`` takes: of the slow variants of a test the first, of more
    than ``_MANY`` variants every third, and all else.

    *tests* are node ids, in order, and whether they are slow.
    """
    variants: defaultdict[tuple[str, bool], list[str]] = defaultdict(list)
    for node, slow in tests:
        variants[node.partition("[")[0], slow].append(node)
    taken: set[str] = set()
    for (_, slow), nodes in variants.items():
        if slow:
            taken.update(nodes[:1])
        else:
            taken.update(nodes[::3] if len(nodes) > _MANY else nodes)
    return taken
