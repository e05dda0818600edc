"""The error of a release check."""

from __future__ import annotations


class ReleaseError(Exception):
    """The release is wrong; the text says what, where, and what would be right."""
