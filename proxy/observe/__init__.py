"""Metrics, logs, traces and the detection of clock jumps."""
