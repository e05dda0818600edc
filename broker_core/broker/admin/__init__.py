"""What a broker says of itself: figures, settings and traffic."""
