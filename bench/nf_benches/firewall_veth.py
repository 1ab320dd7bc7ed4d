"""The firewall between two veth pairs, and nftables in its place with the same rules: CPU time per packet.

As nf_benches/veth.py: the CPU time of the sender, to which the kernel charges much of its work, of the firewall, and of
the kernel's packet threads, above that of sending and dropping, per packet that has reached the sink. nftables follows
connections, too, and the kernel routes its packets; "route" is that without rules. Runs in namespaces that end with
this process.

Usage: python -m nf_benches.firewall_veth ROUNDS PACKETS FLOWS; prints a JSON object.
"""

import json
import shutil
import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from nf_benches.veth import BACKEND, flood, network_function, nothing, run, wire

_RULES = {
    "zones": {"inside": {"ports": [0]}, "outside": {"ports": [1]}},
    "flows": 100_000,
    "unanswered": 100_000,
    "rules": [
        {"name": "blocked", "source": ["10.66.0.0/16"], "action": "drop"},
        {"name": "ssh", "from": ["inside"], "to": ["outside"], "protocols": ["tcp"], "ports": [22], "action": "allow"},
        {"name": "web", "from": ["inside"], "protocols": ["tcp"], "ports": [80, 443], "action": "allow"},
        {"name": "dns", "from": ["inside"], "to": ["outside"], "protocols": ["udp"], "ports": [53], "action": "allow"},
    ],
}
_NFT = """
table inet filter {
  chain forward {
    type filter hook forward priority filter; policy drop;
    ct state established,related accept
    ip saddr 10.66.0.0/16 drop
    iifname "m0" oifname "m1" tcp dport 22 accept
    iifname "m0" tcp dport { 80, 443 } accept
    iifname "m0" oifname "m1" udp dport 53 accept
  }
}
"""
_OURS = ("packet", "xdp")


@contextmanager
def _routing(rules: str | None) -> Iterator[None]:
    """Let the kernel forward, with rules of nftables or without."""
    run("sysctl", "-qw", "net.ipv4.ip_forward=1", namespace="middle")
    if rules is not None:
        run("nft", rules, namespace="middle")
    yield
    if rules is not None:
        run("nft", "flush", "ruleset", namespace="middle")
    run("sysctl", "-qw", "net.ipv4.ip_forward=0", namespace="middle")


def _once(name: str, packets: int, flows: int) -> tuple[float, float]:
    if name in _OURS:
        with network_function("firewall", _RULES, name) as pid:
            # The firewall leaves the addresses as they are.
            flood(flows, packets // 10, pid, address=BACKEND, to=("sink", "eth0"))
            return flood(flows, packets, pid, address=BACKEND, to=("sink", "eth0"))
    with nothing() if name == "base" else _routing(_NFT if name == "nft" else None):
        flood(flows, packets // 10, None, address=BACKEND)
        return flood(flows, packets, None, address=BACKEND)


def main() -> None:
    """The command."""
    rounds, packets, flows = map(int, sys.argv[1:])
    wire()
    has_nft = shutil.which("nft") is not None
    kinds = ["base", "route", *(["nft"] if has_nft else []), *_OURS]
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name in kinds:
            try:
                samples[name].append(_once(name, packets, flows))
            except RuntimeError as error:
                print(f"... {name}: {str(error).strip().splitlines()[-1]}", file=sys.stderr)
    base = statistics.median(ns for ns, _ in samples["base"])
    # Frames lost on the way in have cost less; they must not help.
    above = {
        name: statistics.median((ns - base) / share for ns, share in found)
        for name, found in samples.items()
        if name != "base" and found
    }
    figures: dict[str, object] = {"veth_base_ns": round(base)}
    figures |= {f"veth_{name}_above_ns": round(ns) for name, ns in above.items()}
    figures |= {f"veth_{name}_delivered": round(min(share for _, share in samples[name]), 3) for name in above}
    for name, key in (("xdp", "nftables_ratio"), ("packet", "nftables_ratio_packet")):
        figures[key] = round(above[name] / above["nft"], 2) if has_nft and name in above else None
    figures["nftables_rules_ns"] = round(above["nft"] - above["route"]) if has_nft else None
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
