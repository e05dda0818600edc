"""Pulls and queries: held pulls, filters, look-ups."""
