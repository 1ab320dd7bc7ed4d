"""The far ends of the load balancer's tunnels: in this process, in the kernel, or in an Open vSwitch."""

import fcntl
import os
import socket
import struct
import subprocess
import threading
from pathlib import Path

from lab.namespaces import entered, ip_batch
from lab.ovs import DAEMONS, OvsSwitch
from lab.programs import find_program

NETWORK = 0xABCDEF
"""The identifier of the VXLAN network."""
_DEVICE = "tun-in"


def inner_mac(position: int) -> str:
    """Return the address in the VXLAN network of the server at that position."""
    return f"02:00:00:00:02:{position:02x}"


def end_tunnel(mode: str, name: str, position: int, address: str, directory: Path) -> None:
    """Give a server a device from which decapsulated packets come.

    Args:
        mode: of the load balancer, with a suffix for the kind of tunnel's end.
        name: of the server and of its network namespace.
        position: of the server among the backends.
        address: of the tunnel's end.
        directory: for the files of an Open vSwitch.
    """
    with entered(name):
        match mode:
            case "ipip" | "gue":
                tunnel = _open_tun()
                threading.Thread(target=_decapsulate, args=(_receiver(mode), tunnel, mode), daemon=True).start()
            case "vxlan-ovs":
                _end_in_switch(name, position, address, directory)
            case _:
                # Without a checksum, the kernel drops a datagram over IPv6 by default.
                kind = f"vxlan id {NETWORK} dstport 4789 local {address}"
                ip_batch([f"link add {_DEVICE} address {inner_mac(position)} type {kind}"])
        ip_batch([f"link set {_DEVICE} up"])
        settings = Path("/proc/sys/net/ipv4/conf")
        for device in ("all", _DEVICE):
            (settings / device / "rp_filter").write_text("0")


def _open_tun() -> int:
    """Open a TUN device for decapsulated packets: not every kernel has devices for IPIP and GUE."""
    tunnel = os.open("/dev/net/tun", os.O_RDWR)
    set_interface, is_tun_without_header = 0x400454CA, 0x1001
    fcntl.ioctl(tunnel, set_interface, struct.pack("16sH22x", _DEVICE.encode(), is_tun_without_header))
    return tunnel


def _receiver(mode: str) -> socket.socket:
    if mode == "ipip":
        return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_IPIP)
    receiving = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiving.bind(("0.0.0.0", 6080))
    return receiving


def _decapsulate(receiving: socket.socket, tunnel: int, mode: str) -> None:
    """Write the inner packets of a raw socket, which also returns the outer header, to the device."""
    outer = 20 if mode == "ipip" else 0
    while True:
        os.write(tunnel, receiving.recv(65536)[outer:])


def _end_in_switch(name: str, position: int, address: str, directory: Path) -> None:
    """End the tunnel in an Open vSwitch with two bridges, as on a hypervisor.

    Bridge ``physical`` has the server's interface and address, bridge ``overlay`` the tunnel and the device.
    """
    switch = OvsSwitch(name, directory / name, name)
    switch.create()
    for daemon in DAEMONS:
        switch.launch(daemon)
        switch.await_up(daemon, lambda pid: os.waitpid(pid, os.WNOHANG) == (0, 0))
    words = f"""
        add-br physical -- set bridge physical datapath_type=netdev -- add-port physical eth0
        -- add-br overlay -- set bridge overlay datapath_type=netdev
        -- add-port overlay tunnel
        -- set interface tunnel type=vxlan options:remote_ip=flow options:key={NETWORK}
        -- add-port overlay {_DEVICE}
        -- set interface {_DEVICE} type=internal mac="{inner_mac(position)}"
    """
    command = [find_program("ovs-vsctl"), f"--db=unix:{switch.db_socket}", "--timeout=20", *words.split()]
    subprocess.run(command, check=True)
    ip_batch(
        [
            f"addr del {address}/24 dev eth0",
            f"addr add {address}/24 dev physical",
            "link set physical up",
        ]
    )
