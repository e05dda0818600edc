"""Topics of a broker: definition, deletion, and ended lives."""
