//! Ports of network functions: AF_XDP, AF_PACKET, pcap files, memory. See `nfs/README.md`.
