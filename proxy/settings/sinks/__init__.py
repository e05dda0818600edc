"""Settings of the sinks: a model each, and the registry of them."""
