"""The HTTP port: health, readiness, metrics and the admin API. Decides nothing itself."""
