"""Messages that the proxy delivers itself: requests, answers, pace and pauses of receivers."""
