"""Sinks: messages that the proxy delivers itself instead of a client."""
