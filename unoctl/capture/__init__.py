"""``unoctl capture``: the packets of a virtual port as they pass, wherever the port is.

place      where a port's interface is, and how to run a program there
tap        one tcpdump at one interface
records    the packets of a pcap stream
follow     taps that follow a port, and the limits of a capture
command    the command: its output and its summary

tcpdump reads the interface beside Open vSwitch, whose rules, ports and mirrors stay as they are, so no controller can
tell. It does not see packets that hardware forwards, nor interfaces that the kernel does not have (of type ``pcie`` or
DPDK).
"""
