"""Bulk reads: which records come next, and how fast."""
