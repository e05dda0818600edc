"""Ownership records at the brokers: the log of each queue, its writer, and its retention."""
