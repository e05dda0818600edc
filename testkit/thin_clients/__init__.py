"""Conformance programs of the thin clients in all languages, including Python's."""
