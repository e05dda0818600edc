"""Parked keys at the brokers: copies, records and redrives."""
