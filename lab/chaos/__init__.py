"""``uno-lab chaos``: a seeded series of faults under traffic. Each outage must be shown, and must end.

Data flows one way: `story` (the series) -> `faults` (what breaks, and how it is mended), `watch` (what people are shown
meanwhile) -> `tally` (the counts, and their verdict).
"""
