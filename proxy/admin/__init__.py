"""The HTTP surface: health, readiness, metrics. Reads frozen statistics, decides nothing."""
