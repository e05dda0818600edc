"""Ownership of queues: shares, named owners, trust in locks, and what an owner records."""
