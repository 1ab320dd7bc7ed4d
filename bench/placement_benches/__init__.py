"""What bench/fig16, bench/placement and bench/damper run."""
