"""All benchmarks in one run, compared with a saved run."""
