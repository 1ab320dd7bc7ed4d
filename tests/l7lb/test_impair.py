"""The tool that impairs a wire: its shares are those asked for, and a seed repeats every fault."""

import itertools
import json
import math
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lab.web_path.impairment import Faults
from lab.web_path.path import CLIENT, MIDDLE, WebPath

pytestmark = pytest.mark.root  # other users get small socket buffers, which overflow

_COUNT = 20_000
_SENDER = """
import socket, struct, sys
echo = struct.pack("!BBHHH", 8, 0, 0xf7ff - 7, 0, 7)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, \\
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as icmp:
    icmp.settimeout(30)
    for number in range(int(sys.argv[2])):
        udp.sendto(number.to_bytes(4, "big") + bytes(60), (sys.argv[1], 7000))
        if number % 500 == 499:
            # The answer follows all datagrams on the same wire, so no buffer overflows.
            icmp.sendto(echo, (sys.argv[1], 0))
            icmp.recv(2048)
"""
_HANDSHAKE = """
import contextlib, socket, sys, time
start = time.monotonic()
with contextlib.suppress(ConnectionRefusedError):
    socket.create_connection((sys.argv[1], 7000), timeout=20)
print(time.monotonic() - start)
"""
_RECEIVER = """
import json, socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
    udp.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)
    udp.bind(("", 7000))
    print("ready", flush=True)
    sys.stdin.readline()
    udp.setblocking(False)
    found = []
    while True:
        try:
            found.append(udp.recv(2048).hex())
        except BlockingIOError:
            break
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def wire() -> Iterator[WebPath]:
    """Connect the client and the middle, which has addresses, by an impaired wire."""
    with WebPath(impaired=True) as path:
        path.give_addresses()
        # The first datagram must not wait for address resolution, whose queue is short.
        path.run(CLIENT, "ping", "-c", "1", "-W", "20", path.target)
        yield path


def _sent(wire: WebPath, seed: int, faults: Faults) -> tuple[list[int], dict[str, int]]:
    """Send numbered datagrams; return those that arrived, in order, and the tool's counts."""
    assert wire.front is not None
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    wire.front.set(seed, faults, Faults())
    with wire.popen(MIDDLE, [sys.executable, "-c", _RECEIVER], text=True, **pipes) as receiver:
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "ready\n"
        wire.run(CLIENT, sys.executable, "-c", _SENDER, wire.target, str(_COUNT))
        said, _ = receiver.communicate("\n", timeout=30)
    counts = wire.front.set(0, Faults(), Faults())["forth"]
    return [int(each[:8], 16) for each in json.loads(said)], counts


def _is_plausible(count: int, share: float) -> bool:
    """Tell whether a count is within five standard deviations of its binomial mean."""
    return abs(count - _COUNT * share) <= 5 * math.sqrt(_COUNT * share * (1 - share))


def test_without_faults_every_frame_passes_in_order(wire: WebPath) -> None:
    arrived, counts = _sent(wire, 1, Faults())
    assert arrived == list(range(_COUNT))
    assert counts["frames"] == _COUNT


def test_a_share_is_lost_and_the_seed_says_which(wire: WebPath) -> None:
    first, counts = _sent(wire, 1, Faults(loss=0.05))
    lost = _COUNT - len(first)
    assert _is_plausible(lost, 0.05), lost
    assert (counts["lost"], counts["refused"], counts["overrun"]) == (lost, 0, 0)
    assert _sent(wire, 1, Faults(loss=0.05))[0] == first
    other, _ = _sent(wire, 2, Faults(loss=0.05))
    assert set(range(_COUNT)) - set(other) != set(range(_COUNT)) - set(first)


def test_frames_are_duplicated_and_overtaken(wire: WebPath) -> None:
    arrived, counts = _sent(wire, 3, Faults(duplication=0.05, reordering=0.02))
    assert set(arrived) == set(range(_COUNT))
    assert len(arrived) == _COUNT + counts["duplicated"]
    assert _is_plausible(counts["duplicated"], 0.05), counts
    assert _is_plausible(counts["reordered"], 0.02), counts
    overtaken = sum(later < earlier for earlier, later in itertools.pairwise(arrived))
    assert 0.5 * counts["reordered"] <= overtaken <= 2 * counts["reordered"]


def test_a_delay_holds_for_both_directions(wire: WebPath) -> None:
    assert wire.front is not None
    wire.front.set(0, Faults(delay_ms=30), Faults(delay_ms=20))
    try:
        took = wire.run(CLIENT, sys.executable, "-c", _HANDSHAKE, wire.target)
    finally:
        wire.front.set(0, Faults())
    assert float(took) >= 0.05, "a handshake takes at least a round trip"
