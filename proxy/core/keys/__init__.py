"""Order keys: extracting a message's key, the rules of a topic, and identifiers. Pure."""
