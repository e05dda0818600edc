"""Transactions of a broker: half messages, decisions and checks."""
