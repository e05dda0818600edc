"""Dead letters: copies of messages, and their way back."""
