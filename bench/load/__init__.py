"""Lean programs that load brokers and proxies with little processor time of their own."""
