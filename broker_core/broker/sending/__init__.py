"""Sends: placement, and messages sent back by consumers."""
