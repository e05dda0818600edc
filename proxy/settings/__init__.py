"""Settings: names, units, defaults, and where they come from."""
