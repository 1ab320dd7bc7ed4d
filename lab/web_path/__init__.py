"""A client, a layer-7 load balancer and web servers, for comparisons of load balancers.

`path` has the hosts and their wires, `balancers` the load balancers, `impairment` loss and reordering on the wires,
`origins` the web servers.
"""
