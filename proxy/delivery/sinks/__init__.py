"""Sinks, one module each, imported only if a topic uses it."""
