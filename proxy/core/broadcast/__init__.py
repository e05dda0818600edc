"""Broadcast groups: one member group for each client, and clients that are gone."""
