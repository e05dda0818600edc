"""Bulk readers: places, portions and positions."""
