"""Ownership records: content, encoding and replay."""
