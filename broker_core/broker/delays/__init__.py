"""Delayed messages of a broker: what waits, and its delivery."""
