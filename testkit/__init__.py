"""What tests, benchmarks and the explorer share: the simulated world."""
