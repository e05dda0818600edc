"""Leases: grants, runs, deadlines, retry times and verdicts."""
