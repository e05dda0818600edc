"""Observation: metrics, logs, traces, and jumps of the clocks."""
