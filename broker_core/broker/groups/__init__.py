"""Consumer groups of a broker: members, offsets, orderly locks, retries."""
