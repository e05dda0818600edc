"""Quotas of principals, and the bounded audit of refusals. Pure."""
