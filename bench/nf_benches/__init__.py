"""Benchmarks of the network functions; each prints one JSON object as its last line."""
