"""Reads owned queues: long polls, refills of spilled chains, and samples."""
