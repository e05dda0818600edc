"""Figures of one run of an arm or a peer, by name."""

from __future__ import annotations

from collections.abc import Mapping

Figures = Mapping[str, float | int | str]
