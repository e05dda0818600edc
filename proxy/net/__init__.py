"""Ports, TLS, timers and identities that all shells share."""
