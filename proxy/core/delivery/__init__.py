"""Push delivery: requests, answers, and the pace and pauses of receivers."""
