"""The firewall (nfs/firewall): CPU time per packet, beside ndpiReader, Suricata and nftables.

After the verdict: packets of random flows in batches in memory, without ports. Before it: all Ethernet packets of the
captures in one file, each inspected by nDPI in both programs; the CPU time of starting, measured on a file without
one packet, is left out. The firewall's time has that of its inspector in it. Suricata reads the same file, with two
rules on applications, in one thread (Debian 12 has it in bookworm-backports only); it parses all of each connection.
Beside nftables: see nf_benches/firewall_veth.py, without rules on applications.

Captures are those that `tools/prepare soak` unpacks into .venv/captures, or those of --captures.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from nf_benches import building
from nf_benches.captures import begun, converted, cpu_beyond_start, found, joined
from nf_benches.veth import NAMESPACE_OPTIONS, USER_OPTIONS

_LONGEST = 9216  # what a packet of a function without large frames can hold
# The packets of a flow that are inspected: the default, and a number near that of ndpiReader (80 for TCP, 24 for UDP).
_PACKETS = {"firewall_8": 8, "firewall_32": 32}
_INSPECTION = {"wait_ms": 10_000, "memory_mib": 512}
_RULES = {
    "default": "allow",
    "midstream": "evaluate",
    "other_frames": "allow",
    "unanswered": 100_000,
    "rules": [{"name": "unknown", "applications": ["Unknown"], "action": "allow", "undecided": "allow"}],
}

_SURICATA = """
alert tls any any -> any any (msg:"videos"; tls.sni; content:"youtube.com"; endswith; sid:1;)
alert http any any -> any any (msg:"hosts"; http.host; content:"example.com"; endswith; sid:2;)
"""


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="every fourth capture and fewer packets: done in 50 s")
    parser.add_argument("--captures", type=Path, nargs="+", help="capture files, or directories with some")
    arguments = parser.parse_args()
    print("... building", file=sys.stderr)
    building.build_example("nf-ports", "flood")
    building.build_nf()
    program = building.build_example("nf-firewall", "cost")
    inspector = building.build_program("nf-dpi", "nf-dpi")
    figures: dict[str, object] = {}
    for flows in (1_000, 100_000):
        packets = 500_000 if arguments.quick else 4_000_000
        ended = subprocess.run([program, "after", str(flows), str(packets)], capture_output=True, check=True)
        after = json.loads(ended.stdout)
        figures["after_verdict_ns" if flows == 1_000 else "after_verdict_100k_ns"] = round(after["after_verdict_ns"], 1)
        figures[f"memory_mb_{flows}"] = round(after["memory_bytes"] / 1e6, 1)
    files = found(arguments.captures)
    with tempfile.TemporaryDirectory(prefix="firewall-") as folder:
        captures = converted(files[::4] if arguments.quick else files, Path(folder))
        figures |= before(program, inspector, captures, Path(folder))
    figures |= beside_nftables(arguments.quick)
    figures["load_average"] = os.getloadavg()[0]
    print(json.dumps(figures))


def before(program: str, inspector: str, captures: list[Path], directory: Path) -> dict[str, object]:
    """Compare the CPU time before the verdict with that of ndpiReader."""
    reader = shutil.which("ndpiReader")
    if reader is None or not captures:
        missing = "ndpiReader (Debian: libndpi-bin)" if reader is None else "captures (tools/prepare soak)"
        print(f"... no comparison with ndpiReader: there is no {missing}", file=sys.stderr)
        return {"ndpireader_ratio": None}
    whole, empty = directory / "whole.pcap", directory / "empty.pcap"
    packets = joined(captures, whole, _LONGEST)
    begun(whole, empty)
    sides = {"ndpireader": [reader, "-q", "-i"]} | suricata(directory)
    for name, inspected in _PACKETS.items():
        rules = directory / f"{name}.json"
        inspection = {**_INSPECTION, "packets": inspected, "helper": inspector}
        rules.write_text(json.dumps({**_RULES, "inspection": inspection}))
        sides[name] = [program, "before", str(rules)]
    print(f"... {packets} packets", file=sys.stderr)
    times = {name: cpu_beyond_start(command, whole, empty) for name, command in sides.items()}
    figures: dict[str, object] = {"packets": packets}
    figures |= {f"{name}_us": round(seconds / packets * 1e6, 2) for name, seconds in times.items()}
    for name, key in (("firewall_32", "ndpireader_ratio"), ("firewall_8", "ndpireader_ratio_default")):
        figures[key] = round(times[name] / times["ndpireader"], 2)
    figures["suricata_ratio"] = round(times["firewall_8"] / times["suricata"], 2) if "suricata" in times else None
    return figures


def suricata(directory: Path) -> dict[str, list[str]]:
    """Return the command of Suricata without the capture's name, if it is there."""
    program = shutil.which("suricata")
    if program is None:
        print("... no comparison with Suricata: it is not installed (bookworm-backports: suricata)", file=sys.stderr)
        return {}
    # Also where the package was unpacked without being installed.
    places = (Path("/etc/suricata"), Path(program).parents[2] / "etc/suricata")
    etc = next(place for place in places if (place / "suricata.yaml").exists())
    rules = directory / "suricata.rules"
    rules.write_text(_SURICATA)
    files = {"classification-file": "classification.config", "reference-config-file": "reference.config"}
    files |= {"threshold-file": "threshold.config"}
    settings = [f"--set={key}={etc / name}" for key, name in files.items()]
    quiet = ["--set=outputs.1.eve-log.enabled=no", "--set=stats.enabled=no"]
    options = ["-S", str(rules), "-l", str(directory), "-k", "none", "--runmode", "single", *settings, *quiet]
    return {"suricata": [program, "-c", str(etc / "suricata.yaml"), *options, "-r"]}


def beside_nftables(quick: bool) -> dict[str, object]:
    """Compare with nftables on veth, in namespaces of its own."""
    if shutil.which("nft") is None:
        print("... no comparison with nftables: there is no nft (Debian: nftables)", file=sys.stderr)
    rounds, packets = (1, 100_000) if quick else (5, 500_000)
    rootless = [] if os.geteuid() == 0 else USER_OPTIONS
    command = ["unshare", *rootless, *NAMESPACE_OPTIONS, sys.executable, "-m", "nf_benches.firewall_veth"]
    path = str(Path(__file__).parents[1])
    command += [str(rounds), str(packets), "1000"]
    ended = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, check=True)
    return json.loads(ended.stdout)
