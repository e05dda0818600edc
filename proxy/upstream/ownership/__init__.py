"""Ownership of queues at the brokers: locks, periods, records, commits and hand-overs."""
