"""Replicas of a broker: master and slaves, their log and tables."""
