"""Order keys: how a message gets its key, which rules hold for a topic, and their identifiers."""
