"""Administration of a broker: figures, settings, traffic, and deletion of topics."""
