"""Bulk reads: the content of an answer, and the rate limit."""
