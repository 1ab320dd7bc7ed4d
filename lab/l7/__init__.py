"""``uno-lab l7``: a layer-7 load balancer that routes requests, loses a web server, and moves in mid-request.

Data flows one way: `story` (the checks, in order) -> `lab.demo.site` (the server and its processes), `routes` (the
configuration), `asking` and `unfinished` (clients in a host) -> `counting` (the sums).
"""
