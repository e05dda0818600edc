"""Ports, TLS, timers and identities, shared by all I/O packages of the proxy."""
