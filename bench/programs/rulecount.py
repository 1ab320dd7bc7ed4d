"""Physical rules per virtual rule over one hypervisor and two sNICs (UNO 5.4), each rule checked by a packet.

UNO installed 6,810 rules for 3,024 random virtual ones (2.25) and checked 200 of them by hand. Here the same rules go
to oneswitchd over three switches and to one plain bridge; a packet made for each rule enters both. The packets that
leave each port must be equal, and so must all rules' counters at the end.
"""

import argparse
import json
import random
import re
import subprocess
import tempfile
from dataclasses import dataclass

from lab.control_plane import Oneswitchd
from lab.programs import environment
from lab.server import Lab
from lab.spec import LabSpec
from lab.wires import Place, Wires

SPEC = LabSpec.star(snics=2, hosts_per_switch=2, substrate="dummy")
PORTS = range(1, len(SPEC.ports) + 1)
TCP, UDP = 6, 17


@dataclass(frozen=True)
class Rule:
    """A virtual rule in ovs-ofctl's syntax, and a packet that matches it first."""

    text: str
    in_port: int
    matches_in_port: bool
    frame: bytes


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="no effect: it is always quick")
    parser.add_argument("--rules", type=int, default=3024)
    parser.add_argument("--seed", type=int, default=54)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    rules = [random_rule(draw, number) for number in range(arguments.rules)]
    with Lab(SPEC.reference()).start() as one, Lab(SPEC).start() as three, Oneswitchd(three.server_toml) as oneswitchd:
        oneswitchd.wait_up()
        bridge = one.state.switches[0].virt
        for target in (bridge, oneswitchd.management):
            add(target, rules)
        physical = [dump(switch.virt) for switch in three.state.switches]
        differences = compare_packets(rules, one, three)
        differences += compare_counters(bridge, oneswitchd.management)
    print(json.dumps(report(rules, [len(flows) for flows in physical], differences)))


def random_rule(draw: random.Random, number: int) -> Rule:
    """Draw one or more match conditions, at least one with a value unique to this rule, and one to four actions."""
    udp = draw.random() < 0.5
    unique = 0x02_00_00_00_00_00 + number
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    dl_src, dl_dst, nw_src, nw_dst = "02:ff:00:00:00:01", "02:ff:00:00:00:02", "172.16.0.1", "172.16.0.2"
    tp_src, tp_dst, vlan, in_port = 1000, 2000, None, draw.choice(PORTS)
    conditions = ["ip"]
    mac = ":".join(f"{unique >> shift & 255:02x}" for shift in range(40, -1, -8))
    match draw.choice(("dl_src", "dl_dst", "nw_src", "nw_dst")):
        case "dl_src":
            dl_src, _ = mac, conditions.append(f"dl_src={mac}")
        case "dl_dst":
            dl_dst, _ = mac, conditions.append(f"dl_dst={mac}")
        case "nw_src":
            nw_src, _ = address, conditions.append(f"nw_src={address}")
        case _:
            nw_dst, _ = address, conditions.append(f"nw_dst={address}")
    if draw.random() < 0.3:
        vlan = draw.randrange(1, 4095)
        conditions.append(f"dl_vlan={vlan}")
    if draw.random() < 0.4:
        conditions[0] = "udp" if udp else "tcp"
        tp_dst = draw.randrange(1, 65536)
        conditions.append(f"tp_dst={tp_dst}")
    matches_in_port = draw.random() < 0.5
    if matches_in_port:
        conditions.append(f"in_port={in_port}")
    text = f"priority=100,{','.join(conditions)},actions={random_actions(draw, vlan is not None)}"
    return Rule(text, in_port, matches_in_port, frame(dl_src, dl_dst, vlan, nw_src, nw_dst, udp, tp_src, tp_dst))


def random_actions(draw: random.Random, tagged: bool) -> str:
    """Draw changes of the packet between outputs."""
    changes = ["dec_ttl", "mod_dl_dst:02:aa:00:00:00:01", "mod_nw_src:192.0.2.1", "mod_nw_tos:32", "push_vlan:0x8100"]
    if tagged:
        changes.append("strip_vlan")
    outputs = [f"output:{port}" for port in PORTS] + ["flood", "in_port"]
    chosen = []
    for _ in range(draw.randrange(1, 4)):
        if draw.random() < 0.5:
            chosen.append(changes.pop(draw.randrange(len(changes))))
            if chosen[-1] in ("push_vlan:0x8100", "strip_vlan"):
                changes = [change for change in changes if "vlan" not in change]
        chosen.append(draw.choice(outputs))
    return ",".join(chosen)


def frame(
    dl_src: str, dl_dst: str, vlan: int | None, nw_src: str, nw_dst: str, udp: bool, tp_src: int, tp_dst: int
) -> bytes:
    """Build an IPv4 packet; its checksums are 0 where Open vSwitch ignores them."""
    payload = tp_src.to_bytes(2) + tp_dst.to_bytes(2)
    payload += (b"\0\x0c\0\0" if udp else bytes(8) + b"\x50\x02" + bytes(6)) + b"data"
    addresses = bytes(int(part) for part in f"{nw_src}.{nw_dst}".split("."))
    head = b"\x45\0" + (20 + len(payload)).to_bytes(2) + bytes(4) + bytes([64, UDP if udp else TCP])
    total = sum(int.from_bytes((head + b"\0\0" + addresses)[at : at + 2]) for at in range(0, 20, 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    tag = b"" if vlan is None else b"\x81\0" + vlan.to_bytes(2)
    ethernet = bytes.fromhex((dl_dst + dl_src).replace(":", "")) + tag + b"\x08\0"
    return ethernet + head + (total ^ 0xFFFF).to_bytes(2) + addresses + payload


def add(target: str, rules: list[Rule]) -> None:
    """Install all rules."""
    with tempfile.NamedTemporaryFile("w", suffix=".flows") as file:
        file.write("\n".join(rule.text for rule in rules))
        file.flush()
        ofctl("add-flows", target, file.name)


def dump(target: str) -> list[str]:
    """Return rules and their packet counts, in a switch-independent order."""
    lines = [line.strip() for line in ofctl("dump-flows", target).splitlines() if "actions=" in line]
    return sorted(re.sub(r"cookie=\S+ duration=\S+ ", "", line) for line in lines)


def ofctl(*arguments: str) -> str:
    """Run ovs-ofctl."""
    argv = ["ovs-ofctl", "-O", "OpenFlow13", *arguments]
    return subprocess.run(argv, check=True, capture_output=True, text=True, env=environment()).stdout


def compare_packets(rules: list[Rule], one: Lab, three: Lab) -> list[str]:
    """Return the differences between the frames that leave the two for each rule's packet."""
    homes: dict[int, Place] = {port.number: (port.switch, port.interface) for port in SPEC.ports}
    plain: dict[int, Place] = {port.number: (port.switch, port.interface) for port in SPEC.reference().ports}
    found = []
    with Wires(one.state) as reference, Wires(three.state) as server:
        for rule in rules:
            reference.inject(plain[rule.in_port], rule.frame)
            server.inject(homes[rule.in_port], rule.frame)
            expected, got = reference.settle(), server.settle()
            differ = [port for port in PORTS if expected.get(plain[port], []) != got.get(homes[port], [])]
            found.extend(f"port {port} for {rule.text}" for port in differ)
        reference.purge()
        server.purge()
    return found


def compare_counters(bridge: str, oneswitchd: str) -> list[str]:
    """Return rules whose packet counts differ."""
    expected, got = dump(bridge), dump(oneswitchd)
    return [f"{a} / {b}" for a, b in zip(expected, got, strict=True) if a != b]


def report(rules: list[Rule], physical: list[int], differences: list[str]) -> dict[str, object]:
    """Report counts. Rules that match in_port are on one switch each, the others on all three."""
    total = sum(physical)
    others = sum(not rule.matches_in_port for rule in rules)
    matching = len(rules) - others
    return {
        "virtual": len(rules),
        "physical": total,
        "ratio": round(total / len(rules), 3),
        "ratio_in_port": round((total - others * len(physical)) / matching, 3),
        "physical_by_switch": physical,
        "verified": len(rules),
        "differences": len(differences),
        "first_differences": differences[:3],
        "uno_ratio": 2.25,
    }
