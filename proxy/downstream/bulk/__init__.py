"""Bulk readers: positions, scheduling and answers."""
