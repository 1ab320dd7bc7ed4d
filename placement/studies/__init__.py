"""Studies of the optimiser: workloads, traffic, changes and comparisons for notebooks, benchmarks and tests."""
