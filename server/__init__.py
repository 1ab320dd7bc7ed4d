"""The ground room: one server as server.toml describes it, with queries and changes of its parts.

config          server.toml, read and checked; errors name file, line and key
discovery       selection of a command's server.toml
oneswitchd/     the REST client of oneswitchd (and of nfagent)
openvswitch/    queries of one Open vSwitch, and its bridges and ports over OVSDB; never OpenFlow
errors          all exceptions of this room

Nothing here imports another room of this project; every other room may import this one.
"""
