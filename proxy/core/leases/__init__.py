"""Leases: granting, runs, deadlines, retry times and verdicts."""
