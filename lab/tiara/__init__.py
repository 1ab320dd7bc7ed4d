"""``uno-lab tiara``: a load balancer in three tiers, whose parts are killed and hang under traffic (NSDI'22).

Data flows one way: `story` (the checks, in order) -> `site` (hosts and processes) -> `settings` (addresses and
configurations), `server_nat` (what a real server does to its answers) -> `counting` (the sums).
"""
