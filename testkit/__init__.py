"""Shared by tests, benchmarks and the explorer: processes, clusters, clients, simulated worlds."""
