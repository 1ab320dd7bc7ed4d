"""``make demo``: a load balancer on a server with a smart NIC, deployed, moved as traffic changes, and saved.

Data flows one way: `story` (what is shown, in order) -> `site` (the server and its processes), `traffic` (clients and
what they count), `balancer` (the network function, by REST), `sampling` (CPU) -> `counting` -> `printing`.
"""
