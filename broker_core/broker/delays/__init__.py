"""Delayed messages of a broker: storage, due times, delivery and recall."""
