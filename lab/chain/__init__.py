"""``uno-lab demo --chain``: tenants whose traffic passes a firewall, an asset monitor and a load balancer (UNO, 2.3).

Internal to `lab`; use `lab.cli`.
"""
