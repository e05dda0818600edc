"""Topics of a broker: definition, deletion, and lives that have ended."""
