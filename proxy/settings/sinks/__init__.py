"""Settings of the sinks, one model each, and their registry."""
