"""The ground room: one server as server.toml describes it, and how to ask and change its parts.

config          server.toml, read and checked; errors name file, line and key
discovery       which server.toml a command is about
oneswitchd/     the REST client of oneswitchd (and of nfagent)
openvswitch/    asking one Open vSwitch, and its bridges and ports over OVSDB; never OpenFlow
errors          everything that can be raised here

Nothing here imports another room of this project; every other room may import this one.
"""
