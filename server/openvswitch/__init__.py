"""One Open vSwitch: its control socket, its command-line tools and their output, and its bridges and ports.

unixctl         commands to a daemon over its control socket
openflow_tools  runs ovs-ofctl, ovs-appctl and ovs-vsctl
layout          the ports that a switch should have
bridges         creates them on one switch, over OVSDB
servers         the same for all switches of a server
"""
