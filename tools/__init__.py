"""Development tools of orderlane, not installed with it."""
