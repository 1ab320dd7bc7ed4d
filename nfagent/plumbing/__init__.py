"""Port plumbing: bridges, patch ports, PCIe ports and interfaces over OVSDB. Never OpenFlow.

server_config   server.toml, read and checked
layout          what a switch should have
bridges         making it so on one switch
servers         the same for all switches of a server
errors          everything that can be raised
"""
