"""The asset detection (nfs/assets) compared with PRADS on capture files: lines, and CPU time of all packets.

Both read the same files, classic pcap as tcpdump writes it, and PRADS' signatures. The time of a program is the CPU
time of its process on one file with the packets of all captures, less that on a file without packets: loading
signatures is not part of it.

Captures are those that `tools/prepare soak` unpacks into .venv/captures, and those of os-ken's package; or those of
--captures.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from nf_benches import building
from nf_benches.captures import converted, cpu_beyond_start, found, joined

_VENV = building.ROOT / ".venv"
# The checks that PRADS makes only on request. ICMP is missing: PRADS prints an address of its memory there.
_ALL = "mac=1 arp=1 service_tcp=1 client_tcp=1 service_udp=1 os_udp=1 os_syn_fingerprint=1 os_synack_fingerprint=1"
_ALL += " os_ack_fingerprint=1 os_rst_fingerprint=1 os_fin_fingerprint=1"


@dataclass
class Lines:
    """The result of a comparison of lines.

    Attributes:
        lines: those of PRADS.
        different: lines that only one of both has, with either content of the memory behind cut packets.
        undetermined: lines of PRADS that change with the content of memory that it never wrote.
        from_memory: lines that differ where PRADS reads behind a packet that the capture cut.
    """

    lines: int = 0
    different: int = 0
    undetermined: int = 0
    from_memory: int = 0
    examples: list[str] = field(default_factory=list)


class Prads:
    """PRADS, with a directory for its files."""

    def __init__(self, directory: Path) -> None:
        own = _VENV / "bin/prads"
        found = str(own) if own.exists() else shutil.which("prads")
        if found is None:
            raise SystemExit("assets: no PRADS; tools/prepare test unpacks it")
        self.program = found
        self.signatures = _VENV / "prads/etc/prads" if own.exists() else Path("/etc/prads")
        self.log = directory / "prads.log"
        self.config = directory / "prads.conf"
        self.config.write_text(_ALL.replace(" ", "\n") + "\n")

    def lines(self, capture: Path, checks: str, **environment: str) -> list[bytes]:
        """Return the lines for a capture file."""
        self.log.unlink(missing_ok=True)
        options = ["-c", str(self.config)] if checks == "all" else []
        command = [self.program, *options, "-l", str(self.log), "-r", str(capture)]
        ended = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, check=False)
        if ended.returncode:
            raise SystemExit(f"assets: prads ended with {ended.returncode} on {capture}")
        return self.log.read_bytes().splitlines()[1:]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="every fourth capture: done in 50 s")
    parser.add_argument("--captures", type=Path, nargs="+", help="capture files, or directories with some")
    arguments = parser.parse_args()
    print("... building", file=sys.stderr)
    program = building.build_example("nf-assets", "lines")
    with tempfile.TemporaryDirectory(prefix="assets-") as folder:
        directory = Path(folder)
        prads = Prads(directory)
        files = found(arguments.captures)
        captures = converted(files[::4] if arguments.quick else files, directory)
        if not captures:
            raise SystemExit("assets: no captures; tools/prepare soak unpacks some, or name them with --captures")
        figures: dict[str, object] = {"captures": len(captures)}
        figures |= compare(program, prads, captures, ["prads"] if arguments.quick else ["prads", "all"])
        figures |= speed(program, prads, captures, directory)
    print(json.dumps(figures))


def compare(program: str, prads: Prads, captures: list[Path], checks: list[str]) -> dict[str, object]:
    """Compare the lines of both for each capture."""
    found = Lines()
    for each in checks:
        print(f"... comparing {len(captures)} captures, checks {each}", file=sys.stderr)
        clean, used = (_ours(program, prads, captures, each, memory) for memory in ("clean", "used"))
        for capture in captures:
            expected = prads.lines(capture, each)
            found.lines += len(expected)
            found.from_memory += _different(expected, clean[capture.name])
            if expected not in (clean[capture.name], used[capture.name]):
                _judge(found, prads, capture, each, expected, used[capture.name])
    for example in found.examples[:10]:
        print(f"... {example}", file=sys.stderr)
    return {
        "lines": found.lines,
        "lines_different": found.different,
        "lines_undetermined": found.undetermined,
        "lines_from_memory": found.from_memory,
    }


def _judge(found: Lines, prads: Prads, capture: Path, checks: str, expected: list[bytes], ours: list[bytes]) -> None:
    """Count the lines that differ, except those that depend on memory that PRADS never wrote."""
    filled = [prads.lines(capture, checks, MALLOC_PERTURB_=value) for value in ("85", "170")]
    stable = (Counter(expected) & Counter(filled[0])) & Counter(filled[1])
    undetermined = Counter(expected) - stable
    missing = stable - Counter(ours)
    more = Counter(ours) - Counter(expected)
    found.undetermined += undetermined.total()
    different = missing.total() + max(0, more.total() - undetermined.total())
    if different == 0 and not undetermined:
        different = _different(expected, ours)  # the same lines in another order
    found.different += different
    if different:
        lines = [f"-{line.decode(errors='replace')}" for line in missing]
        found.examples += lines + [f"+{line.decode(errors='replace')}" for line in more]


def _different(expected: list[bytes], ours: list[bytes]) -> int:
    if expected == ours:
        return 0
    missing, more = Counter(expected) - Counter(ours), Counter(ours) - Counter(expected)
    return max(missing.total(), more.total(), 1)


def _ours(program: str, prads: Prads, captures: list[Path], checks: str, memory: str) -> dict[str, list[bytes]]:
    """Return our lines for each capture, by its name; with ``used`` memory, earlier packets are behind each."""
    command = [program, checks, memory, str(prads.signatures), *map(str, captures)]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    lines: dict[str, list[bytes]] = {}
    name = ""
    for line in output.splitlines():
        if line.startswith(b"# "):
            name = Path(line[2:].decode()).name
            lines[name] = []
        else:
            lines[name].append(line)
    return lines


def speed(program: str, prads: Prads, captures: list[Path], directory: Path) -> dict[str, object]:
    """Compare the CPU time of both for the packets of all captures together."""
    whole, empty = directory / "whole.pcap", directory / "empty.pcap"
    packets = joined(captures, whole)
    joined([], empty)
    log = str(directory / "speed.log")
    sides = {
        "prads": [prads.program, "-l", log, "-r"],
        "assets": [program, "prads", "clean", str(prads.signatures)],
    }
    print(f"... {packets} packets", file=sys.stderr)
    times = {name: cpu_beyond_start(command, whole, empty) for name, command in sides.items()}
    return {
        "packets": packets,
        "prads_pps": round(packets / times["prads"]),
        "assets_pps": round(packets / times["assets"]),
        "prads_speedup": round(times["prads"] / times["assets"], 1),
        "load_average": os.getloadavg()[0],
    }
