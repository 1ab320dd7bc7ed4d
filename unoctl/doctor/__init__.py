"""Implements ``unoctl doctor``: checks the machine, Open vSwitch, the server and oneswitchd, and suggests repairs.

findings   what a check says
machine    the machine: kernel, tools, limits
wiring     the switches: sockets, bridges, ports, links
daemon     oneswitchd and its connections
drift      rules on the switches beside what they should be
checkup    the checks in their order, and the report
"""
