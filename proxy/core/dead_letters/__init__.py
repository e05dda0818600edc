"""Dead letters: copies of messages, and their redrive."""
