"""What happens on the server, measured: traffic between virtual ports, load of instances, use of PCIe links."""
