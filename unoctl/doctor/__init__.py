"""Implements ``unoctl doctor``: checks the machine, Open vSwitch, the server and oneswitchd, and suggests repairs.

findings   results of checks
machine    the machine: kernel, tools, limits
wiring     the switches: sockets, bridges, ports, links
daemon     oneswitchd and its connections
mending    the commands that bring back what does not answer
drift      rules, groups and meters compared with the wanted ones
checkup    the order of the checks, and the report
"""
