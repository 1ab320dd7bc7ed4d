"""Peers that break every rule of a `pcie` link while packets flow: `python -m tests.ovs.fuzz PROGRAMS SECONDS [SEED]`.

PROGRAMS is the directory of an installation, best one with AddressSanitizer. Two ports of one switch have a peer each,
and the switch forwards between them. One peer sends packets and writes random bytes into the shared memory; it dies,
floods, and sends random messages.
"""

import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.ovs.peer import DATA_OFFSET, HEAD, HELLO, MESSAGE, PADDING, RECORD, SLEEPING, TAIL, UNIT, Peer, Ring
from tests.ovs.switch import Switch

INTERESTING = (0, 1, UNIT, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, PADDING, 65536, 65537, 13, 14)


def frame(chance: random.Random) -> bytes:
    """A frame with plausible headers, or only random bytes."""
    size = chance.choice((14, 60, 64, 590, 1514, 9234, 65536, chance.randrange(1, 3000)))
    ethertype = chance.choice(
        (b"\x08\x00\x45", b"\x86\xdd\x60", b"\x81\x00\x00\x05\x08\x00\x45", b"\x08\x06", b"\x88\x47", b"\x88\xb5")
    )
    return (chance.randbytes(12) + ethertype + chance.randbytes(size))[:size]


def number(chance: random.Random, near: int) -> int:
    return (
        chance.choice((near + chance.randrange(-3, 4), chance.choice(INTERESTING), chance.getrandbits(32))) & 0xFFFFFFFF
    )


def forge(chance: random.Random, ring: Ring) -> None:
    """Publishes a record whose header is a lie."""
    RECORD.pack_into(ring.memory, ring.at(ring.position), number(chance, ring.size), number(chance, 0), 0)
    ring.position += chance.randrange(1, 4)
    ring.set_word(HEAD, ring.position)


def break_memory(chance: random.Random, ring: Ring) -> None:
    where = chance.randrange(6)
    if where < 2:
        ring.set_word((HEAD, TAIL)[where], number(chance, ring.word((HEAD, TAIL)[where])))
    elif where == 2:
        ring.set_word(SLEEPING, number(chance, 1))
    elif where == 3:
        forge(chance, ring)
    else:
        size = chance.choice((1, 4, 16, 4096))
        start = (
            ring.at(ring.word(HEAD) + chance.randrange(-64, 64))
            if where == 4
            else ring.offset + chance.randrange(DATA_OFFSET + ring.size)
        )
        start = min(start, len(ring.memory) - size)
        ring.memory[start : start + size] = chance.randbytes(size)


def send_message(chance: random.Random, peer: Peer) -> None:
    good = MESSAGE.pack(
        0x4F565350,
        chance.choice((1, 1, 1, 2)),
        chance.randrange(6),
        chance.randrange(80),
        chance.randrange(3),
        1 << chance.randrange(30),
        0,
    )
    peer.socket.settimeout(0)
    peer.socket.send(chance.choice((good, good, chance.randbytes(chance.randrange(1, 64)), b"")))


def live(chance: random.Random, peer: Peer, seen: Counter[str]) -> None:
    """Uses a link until the peer or the switch gives it up."""
    evil = chance.random() < 0.8
    for _ in range(chance.randrange(20, 400)):
        if chance.random() < 0.05 and evil:
            break_memory(chance, chance.choice(peer.sent + peer.received))
            seen["writes"] += 1
        elif chance.random() < 0.004 and evil:
            send_message(chance, peer)
            seen["messages"] += 1
        elif chance.random() < 0.01:
            seen["flood"] += sum(
                peer.put(frame(chance), number(chance, 1), chance.randrange(len(peer.sent))) for _ in range(200)
            )
        else:
            seen["sent"] += peer.put(frame(chance), number(chance, 1), chance.randrange(len(peer.sent)))
        for ring in peer.received:
            while chance.random() < 0.7 and ring.get():
                seen["received"] += 1


def session(chance: random.Random, path: Path, seen: Counter[str]) -> None:
    try:
        peer = Peer(path, queues=chance.choice((1, 1, 2, 3)), patience=3)
    except (OSError, AssertionError):
        seen["refused"] += 1
        return
    seen["links"] += 1
    try:
        if chance.random() < 0.05:
            peer.message(HELLO, 1)
        live(chance, peer, seen)
    except OSError:
        seen["closed by the switch"] += 1
    except (ValueError, IndexError):
        seen["peer confused"] += 1  # it trusts its own broken memory
    finally:
        peer.socket.close()
        peer.memory.close()


def check_alive(switch: Switch, ports: tuple[Path, ...]) -> None:
    """Fails unless a packet crosses the switch between honest peers."""
    first, second = (Peer(path) for path in ports)
    text = b"\x02" * 6 + b"\x04" * 6 + b"\x88\xb5" + b"whole" * 20
    deadline = time.monotonic() + 20
    while True:
        first.put(text, 7)
        try:
            if second.get(0.5) == (text, 8):
                break
        except TimeoutError:
            assert time.monotonic() < deadline, f"no packet crosses the switch; {switch.errors()}"
    first.close()
    second.close()


def fuzz(
    programs: Path, folder: Path, seconds: float, seed: int, environment: dict[str, str] | None = None
) -> Counter[str]:
    chance = random.Random(seed)
    switch = Switch(folder, programs, environment)
    seen: Counter[str] = Counter()
    ports = (
        switch.add_port("p1", 1),
        switch.add_port("p2", 2, "type=pcie-pmd", "options:n_rxq=2", "options:ring_size=262144"),
    )
    switch.vsctl("set", "Open_vSwitch", ".", "other_config:pmd-maxsleep=200")
    switch.ofctl("add-flow", "in_port=1,actions=set_field:8->tun_id,2")
    switch.ofctl("add-flow", "in_port=2,actions=set_field:7->tun_id,1")
    end = time.monotonic() + seconds
    evil, honest = 0, Peer(ports[1])
    while time.monotonic() < end:
        session(chance, ports[evil], seen)
        while honest.received[0].get():
            seen["crossed"] += 1
        if chance.random() < 0.1:
            honest.close()
            check_alive(switch, ports)
            evil = chance.randrange(2)
            honest = Peer(ports[1 - evil])
            seen["checks"] += 1
    honest.close()
    check_alive(switch, ports)
    switch.stop()
    return seen


if __name__ == "__main__":
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else int(time.time())
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as place:
        print(dict(fuzz(Path(sys.argv[1]), Path(place), float(sys.argv[2]), seed)))
