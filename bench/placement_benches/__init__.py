"""The programs of bench/fig16, bench/placement and bench/damper."""
