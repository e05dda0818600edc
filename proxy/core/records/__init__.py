"""Ownership records: what they say, how they are encoded, and what they add up to."""
