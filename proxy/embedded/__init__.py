"""The HTTP port of the embedded broker, and its metrics."""
