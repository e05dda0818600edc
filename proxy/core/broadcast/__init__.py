"""Broadcast groups: one member group per client, and departed clients."""
