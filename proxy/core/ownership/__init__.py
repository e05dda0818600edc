"""Ownership of queues: shares, named owners, trust in locks, and an owner's records."""
