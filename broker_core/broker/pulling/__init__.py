"""Pulls and queries: held pulls, filters, lookups."""
