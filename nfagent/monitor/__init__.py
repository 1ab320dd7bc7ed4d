"""Measurements of the server: traffic between virtual ports, load of instances, use of PCIe links."""
