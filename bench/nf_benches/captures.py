"""Capture files for benches, and the CPU time that a program takes for their packets."""

import os
import statistics
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path

from nf_benches import building

_VENV = building.ROOT / ".venv"
_ENDINGS = {".pcap", ".cap", ".pcapng", ".ntar"}
_HEADER = struct.Struct("<IHHiIII")
_PACKET = struct.Struct("<IIII")
_ETHERNET = 1
_TIMES = 3


def found(wanted: list[Path] | None) -> list[Path]:
    """Return the capture files to use."""
    own = [_VENV / "captures", *_VENV.glob("lib/python3*/site-packages/os_ken/tests/packet_data")]
    files: list[Path] = []
    for place in own if wanted is None else wanted:
        files += [place] if place.is_file() else (each for each in place.rglob("*") if each.suffix in _ENDINGS)
    return sorted(files)


def converted(files: Iterable[Path], directory: Path) -> list[Path]:
    """Write each capture as classic pcap; leave out those that tcpdump cannot read."""
    captures = []
    for number, file in enumerate(files):
        capture = directory / f"{number:05}.pcap"
        command = ["tcpdump", "-r", str(file), "-w", str(capture)]
        ended = subprocess.run(command, capture_output=True, check=False)
        if ended.returncode == 0 and capture.stat().st_size > _HEADER.size:
            captures.append(capture)
    return captures


def joined(captures: list[Path], into: Path, longest: int = 262_144) -> int:
    """Write the packets of all Ethernet captures, up to a length, into one file; return their number."""
    count = 0
    with into.open("wb") as out:
        out.write(_HEADER.pack(0xA1B2C3D4, 2, 4, 0, 0, 262_144, _ETHERNET))
        for capture in captures:
            data = capture.read_bytes()
            if data[:4] != b"\xd4\xc3\xb2\xa1" or _HEADER.unpack_from(data)[6] & 0xFFFF != _ETHERNET:
                continue
            at = _HEADER.size
            while at + _PACKET.size <= len(data):
                _, microseconds, length, original = _PACKET.unpack_from(data, at)
                end = at + _PACKET.size + length
                # Some captures have times and lengths that not every reader takes.
                if microseconds < 1_000_000 and length <= min(longest, original):
                    out.write(data[at:end])
                    count += 1
                at = end
    return count


def begun(capture: Path, into: Path) -> None:
    """Write a file with the first packet of a capture: some programs refuse a file without packets."""
    data = capture.read_bytes()
    length = _PACKET.unpack_from(data, _HEADER.size)[2]
    into.write_bytes(data[: _HEADER.size + _PACKET.size + length])


def cpu_beyond_start(command: list[str], whole: Path, empty: Path) -> float:
    """Return the seconds of CPU that a program takes for a capture file, without those for one with hardly any."""

    def median(capture: Path) -> float:
        return statistics.median(_cpu([*command, str(capture)]) for _ in range(_TIMES))

    return median(whole) - median(empty)


def _cpu(command: list[str]) -> float:
    """Return the seconds of CPU of a process, and of those that it has waited for."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[0]} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime
