"""Draws the figures of the papers' pages in docs/ from saved results of benchmarks."""
