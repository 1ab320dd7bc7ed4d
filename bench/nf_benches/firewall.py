"""The firewall (nfs/firewall): CPU time per packet after the verdict, and before it beside ndpiReader.

After the verdict: packets of random flows in batches in memory, without ports. Before it: all Ethernet packets of the
captures in one file, each inspected by nDPI in both programs; the CPU time of starting, measured on a file without
packets, is left out. The firewall's time has that of its inspector in it.

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
from nf_benches.captures import converted, cpu_beyond_start, found, joined

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


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="every fourth capture and fewer packets: done in 50 s")
    parser.add_argument("--captures", type=Path, nargs="+", help="capture files, or directories with some")
    arguments = parser.parse_args()
    print("... building", file=sys.stderr)
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
    joined([], empty)
    sides = {"ndpireader": [reader, "-q", "-i"]}
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
    return figures
