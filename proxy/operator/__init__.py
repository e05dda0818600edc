"""Operator actions: keys, leases, messages, offsets, owners and dead letters."""
