"""Variants of a long test, of which ``make test`` takes the first and another target the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def first_of(
    name: str, variants: Sequence[Any], *, count: int = 1, **options: Any
) -> pytest.MarkDecorator:
    """Return ``parametrize`` with all *variants*; those after the first *count* are slow tests.

    *options* are those of ``parametrize``.
    """
    slow = [pytest.param(each, marks=pytest.mark.slow) for each in variants[count:]]
    return pytest.mark.parametrize(name, [*variants[:count], *slow], **options)
