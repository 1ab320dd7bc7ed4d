"""The figures of bench/pcie about memory, from what Open vSwitch's benchmark prints."""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
copies: Any = importlib.import_module("ovs_benches.copies")

PRINTED = """\
memcpy: 60.0 ns per packet, 1.00 of memcpy
ring: 64.0 ns per packet, 0.94 of memcpy
netdev: 120.0 ns per packet, 0.50 of memcpy
"""


def ovstest(folder: Path, lines: str) -> Path:
    """Make a program that prints `lines`."""
    program = folder / "ovstest"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}END\n")
    program.chmod(0o755)
    return program


def test_shares_are_times_of_copies_over_times_of_packets(tmp_path: Path) -> None:
    times = copies.measure(ovstest(tmp_path, PRINTED), tmp_path, 1514, 1)
    found = copies.shares(times, 1_000_000, 2)
    # A packet's 7 copies of 30 ns, of the 2 us that both cores have for it.
    wanted = {"copy_ns_1500": 30, "bandwidth_share_1500": 0.94, "port_share_1500": 0.5, "path_share_1500": 0.105}
    assert found == wanted
    assert found.keys() == set(copies.FIGURES)
    assert copies.shares(times, None, 2) == wanted | {"path_share_1500": None}


def test_missing_line_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no time of netdev"):
        copies.measure(ovstest(tmp_path, PRINTED[: PRINTED.index("netdev")]), tmp_path, 1514, 1)
