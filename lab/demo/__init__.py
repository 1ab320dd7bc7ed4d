"""``make demo``: deploy a load balancer on a server with a smart NIC, move it as traffic changes, and recover it.

Data flows one way: `story` (the checks, in order) -> `site` (the server and its processes), `traffic` (clients and
their counts), `balancer` (the network function, by REST), `sampling` (CPU) -> `counting` -> `printing`.
"""
