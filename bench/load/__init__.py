"""Lean programs that load brokers and proxies, with little work of their own."""
