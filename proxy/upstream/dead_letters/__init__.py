"""Dead letters at the brokers: copies, and the redrive of a dead-letter topic."""
