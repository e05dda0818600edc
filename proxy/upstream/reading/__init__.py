"""Reading owned queues: long polls, refills, and what retention is about to delete."""
